"""Names that the source documents fix. Users' programs, dashboards and scripts rely on them: they are never renamed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from holdfast import State
from holdfast.jobs.moves import Kind
from holdfast.metrics.names import FAMILIES
from holdfast.server.routes import ROUTES
from systems.converter import settings as converter_settings
from systems.converter.codes import Code
from systems.grading import settings as grading_settings
from systems.grading import topology
from tests.systems.test_engine_api import System, converter, grading, screenshots

ROOT = Path(__file__).parents[2]

STATES = "queued processing complete failed cancelled"
EVENTS = "queued processing retry complete failed expired"
CONVERTER_CODES = "NOT_PDF TOO_LARGE GW_4XX GW_5XX GW_TIMEOUT IO_ERROR NOT_READY EXPIRED FORBIDDEN UNKNOWN"
CONVERTER_SETTINGS = """
    RETRY_MAX_ATTEMPTS RETRY_BASE_DELAY_MS RETRY_JITTER_MAX_MS WORKER_LEASE_TTL_SEC GATEWAY_TIMEOUT_MS WORKER_CONCURRENCY
    CIRCUIT_WINDOW CIRCUIT_FAIL_THRESHOLD CIRCUIT_COOLDOWN_MS CIRCUIT_MODE DATABASE_URL GATEWAY_URL UPLOADS_DIR RESULTS_DIR
"""
GRADING_SETTINGS = """
    OUTBOX_POLL_INTERVAL_MS OUTBOX_BATCH_SIZE OUTBOX_STALE_THRESHOLD_MS TIMEOUT_CHECK_INTERVAL_MS
"""
METRICS = """
    jobs_created_total jobs_completed_total jobs_failed_total job_processing_duration_seconds queue_depth jobs_active
    jobs_delayed retries_scheduled_total attempts_total attempts_succeeded_total jobs_nonretryable_total manual_retry_total
    stuck_recovered_total breaker_state breaker_open_seconds_total dependency_latency_seconds outbox_lag_seconds dead_letters
    time_to_success_seconds
"""
ROUTES_OF: dict[Callable[[Path, str], System], tuple[str, ...]] = {
    converter: (
        "POST /api/upload",
        "GET /api/jobs",
        "GET /api/jobs/{job_id}",
        "GET /api/jobs/{job_id}/download",
        "POST /api/jobs/{job_id}/retry",
    ),
    grading: ("POST /submissions",),
    screenshots: (
        "POST /api/v1/screenshots",
        "GET /api/v1/screenshots/{job_id}",
        "POST /api/v1/screenshots/{job_id}/retry",
    ),
}
ADMIN_ROUTES = (
    "GET /api/v1/admin/workers/status",
    "GET /api/v1/admin/jobs/stuck",
    "POST /api/v1/admin/jobs/stuck",
    "POST /api/v1/admin/jobs/process-stuck",
    "POST /api/v1/admin/retry-scheduler/pause",
    "POST /api/v1/admin/retry-scheduler/resume",
)
#: Words in JSON, logs and meta, by the folder whose source must have them.
WORDS = {
    "src/holdfast": """
        attempt gateway_http_status duration_ms error_code event job_id status gateway_status breaker
        AUTOMATIC MANUAL STUCK_JOBS FAILED_JOBS DELAYED_JOBS TIMEOUT WORKER_LOST
    """,
    "systems/converter": "attemptCount retryAfter queuedAt result_path",
    "systems/grading": """
        requestId submissionId failureReason attemptsMade lastError timestamp isLate deadlineAt createdAt aggregate_id
        message_type retry_count error_message processed_at CIRCUIT_OPEN PENDING PROCESSING COMPLETED FAILED
    """,
    "systems/screenshots": """
        jobId queuePosition lockedBy lockedAt retryType isRetryable lastFailureReason nextRetryAt maxRetries manualRetryCount
        requestedBy requiredCredits availableCredits CONCURRENT_MODIFICATION INSUFFICIENT_CREDITS VALIDATION_ERROR
    """,
}


def test_states_and_events_have_the_names_of_the_sources() -> None:  # E1 E60
    assert [state.value for state in State] == STATES.split()
    assert set(EVENTS.split()) <= set(Kind.__members__)


def test_codes_and_settings_have_the_names_of_the_sources() -> None:  # C3 C11 G2 G5
    assert [code.value for code in Code] == CONVERTER_CODES.split()
    assert set(CONVERTER_SETTINGS.split()) <= _variables(converter_settings.Settings)
    assert set(GRADING_SETTINGS.split()) <= _variables(grading_settings.Settings)


def test_queues_and_metrics_have_the_names_of_the_sources() -> None:  # G1 G4 G6 E62
    assert {"grading.request", "grading.callback", "grading.dlq"} <= set(topology.queues())
    assert set(METRICS.split()) <= set(FAMILIES)


@pytest.mark.parametrize("make", ROUTES_OF, ids=lambda make: make.__name__)
def test_the_routes_of_a_system_are_those_of_its_source(
    make: Callable[[Path, str], System], tmp_path: Path
) -> None:  # C2 G1 S2
    site = make(tmp_path, f"sqlite:///{tmp_path}/jobs.db").site
    assert set(ROUTES_OF[make]) <= _routes(site.routes)


def test_the_admin_routes_are_those_of_the_source() -> None:  # S4 S5
    assert set(ADMIN_ROUTES) <= _routes(ROUTES)


@pytest.mark.parametrize("folder", WORDS)
def test_json_and_logs_have_the_words_of_the_sources(folder: str) -> None:  # C2 E63 G4 S2
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / folder).rglob("*.py"))
    # A struct with rename="camel" says requested_by for requestedBy.
    missing = [
        word for word in WORDS[folder].split() if not re.search(rf"\b({word}|{_snake(word)})\b", source)
    ]
    assert missing == []


def _snake(word: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", lambda found: f"_{found[1].lower()}", word)


def _variables(settings: type[converter_settings.Settings | grading_settings.Settings]) -> set[str]:
    return {field.name.upper() for field in fields(settings)}


def _routes(routes: object) -> set[str]:
    found: set[str] = set()
    for route in routes:  # type: ignore[attr-defined]
        found |= {f"{method} {route.path}" for method in getattr(route, "methods", None) or ()}
    return found
