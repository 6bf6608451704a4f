"""The policy of the source document, bullet by bullet (P2, P3, P4; E11, E12, E13)."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import pytest

from holdfast import Fatal, Retryable, State, StoreUnavailable, UsageError
from holdfast.jobs.codes import ErrorClass
from holdfast.resilience.classify import classify
from holdfast.resilience.policy import REPORTS
from systems.reports.codes import CODES, OUTPUT_CODES, Code, message, public_code
from systems.reports.failures import DocumentsUnavailable, ReportFailed, Trouble, failed, rule
from systems.reports.model.client import ask_model
from systems.reports.model.errors import of_body, of_network, of_status, parse_span
from systems.reports.policy import retry_policy
from systems.reports.settings import Settings
from systems.reports.web.views import STATUS, show
from tests.systems.reports.world import World

ROOT = Path(__file__).parents[3]


def judged(error: Exception, attempt: int = 1) -> Any:
    """What the engine makes of it."""
    return classify(failed(error, attempt=attempt, max_attempts=4), rules=(rule,), policy=retry_policy())


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("json_schema", {"type": "json_schema", "json_schema": {"name": "report", "schema": {}}}),
        ("json_object", {"type": "json_object"}),
        ("none", None),
    ],
)
async def test_a_server_is_asked_in_the_words_that_its_owner_has_chosen(kind: str, told: Any) -> None:  # P7
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(200, headers={"content-type": "application/json"}, content=pieces())

    async def pieces() -> AsyncIterator[bytes]:
        yield json.dumps({"choices": [{"message": {"content": "{}"}, "finish_reason": "stop"}]}).encode()

    chosen = {"MODEL_RESPONSE_FORMAT": kind, "MODEL_TOKENS_FIELD": "max_completion_tokens"}
    settings = Settings.read(chosen | {"MODEL_MAX_TOKENS": "77", "MODEL_STREAM": "false"})
    async with httpx2.AsyncClient(
        transport=httpx2.MockTransport(answer), base_url="http://model/v1/"
    ) as client:
        assert (await ask_model(client, settings, [], {}, request_id="job-1"))["text"] == "{}"
    [request] = asked
    body = json.loads(request.content)
    assert (body.get("response_format"), body["max_completion_tokens"]) == (told, 77)
    assert "max_tokens" not in body
    assert request.headers["idempotency-key"] == request.headers["x-client-request-id"] == "job-1"


def test_there_are_four_attempts_in_all() -> None:  # P2
    assert retry_policy().max_attempts == REPORTS.max_attempts == Settings().retry_max_attempts == 4


def test_the_decision_on_record_is_the_one_in_force_and_says_when_to_undo_it() -> None:  # P8
    record = (ROOT / "docs/adr/0009-reports-policy.md").read_text(encoding="utf-8")
    backoff = retry_policy().backoff
    waits = ", ".join(f"{backoff.delay(attempt, 0.5).total_seconds():.0f} s" for attempt in (1, 2, 3))
    assert f"| attempts | {retry_policy().max_attempts} in all |" in record
    assert f"| waits | {waits}, each ±20 % |" in record
    rollback = record.partition("## Rollback")[2]
    assert "Triggers:" in rollback
    assert "(../explanation/reliability.md)" in rollback
    rules = (ROOT / "docs/explanation/reliability.md").read_text(encoding="utf-8")
    assert "(../adr/0009-reports-policy.md)" in rules


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 30), (2, 120), (3, 480)])
def test_each_wait_stays_within_a_fifth_of_the_table_over_10000_draws(
    attempt: int, seconds: int
) -> None:  # P2 E11
    chance, backoff = random.Random(attempt), retry_policy().backoff
    draws = [backoff.delay(attempt, chance.random()).total_seconds() for _ in range(10_000)]
    assert seconds * 0.8 <= min(draws) < seconds * 0.801
    assert seconds * 1.199 < max(draws) <= seconds * 1.2
    assert abs(sum(draws) / len(draws) - seconds) < seconds * 0.01
    assert backoff.delay(attempt, 0.5) == REPORTS.backoff.delay(attempt, 0.5) == timedelta(seconds=seconds)
    assert backoff.delay(attempt, 0.0) == timedelta(seconds=seconds * 0.8)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (of_network(httpx2.ReadTimeout("slow")), "MODEL_TIMEOUT"),
        (of_network(TimeoutError()), "MODEL_TIMEOUT"),
        (of_network(httpx2.ConnectError("refused")), "MODEL_UNREACHABLE"),
        (of_network(httpx2.ReadError("reset")), "MODEL_UNREACHABLE"),
        (of_network(httpx2.RemoteProtocolError("half")), "MODEL_UNREACHABLE"),
        (of_status(429, {}), "MODEL_THROTTLED"),
        *[(of_status(status, {}), "MODEL_5XX") for status in (500, 502, 503, 504, 529)],
        (DocumentsUnavailable("no answer"), "IO_ERROR"),
        (StoreUnavailable("gone"), "IO_ERROR"),
        (sqlite3.OperationalError("locked"), "IO_ERROR"),
        (asyncpg.InterfaceError("closed"), "IO_ERROR"),
        (ConnectionResetError(), "IO_ERROR"),
        (RuntimeError("a bug"), "UNKNOWN"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_may_pass_is_tried_again(error: Exception, code: str) -> None:  # P3 E13
    failure = judged(error)
    assert failure.code == code
    assert failure.error_class in (ErrorClass.TRANSIENT, ErrorClass.THROTTLED, ErrorClass.UNKNOWN)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        *[
            (of_status(status, {}), "MODEL_4XX")
            for status in (400, 401, 402, 403, 404, 408, 409, 413, 422, 451)
        ],
        (of_status(301, {}), "MODEL_4XX"),
        (of_status(400, {}, {"error": {"code": "content_filter"}}), "MODEL_FILTERED"),
        *[
            (Trouble(code), code.value)
            for code, known in CODES.items()
            if not known.again and code not in (Code.NOT_READY, Code.FORBIDDEN)
        ],
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_stays_as_it_is_ends_at_once(error: Exception, code: str) -> None:  # P4 E13
    failure = judged(error)
    assert (failure.code, failure.error_class) == (code, ErrorClass.PERMANENT)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": "rate_limit_exceeded"}, Code.MODEL_THROTTLED),
        ({"code": 429}, Code.MODEL_THROTTLED),
        ({"type": "server_error"}, Code.MODEL_5XX),
        ({"type": "overloaded_error"}, Code.MODEL_5XX),
        ({"code": 503}, Code.MODEL_5XX),
        ({"code": "context_length_exceeded"}, Code.MODEL_4XX),
        ({"type": "invalid_request_error"}, Code.MODEL_4XX),
        ({"code": "content_policy_violation"}, Code.MODEL_FILTERED),
        ({"message": "key sk-1 is wrong"}, Code.MODEL_5XX),
        ("nonsense", Code.MODEL_5XX),
        ({"code": 10**30}, Code.MODEL_5XX),
    ],
)
def test_an_error_in_the_body_of_a_200_has_its_code(error: Any, code: Code) -> None:  # P3 P4
    trouble = of_body(error, {})
    assert trouble.code is code
    assert "sk-1" not in str(trouble)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "10"}, 10),
        ({"retry-after": "10", "x-ratelimit-reset-requests": "1s"}, 10),
        ({"retry-after-ms": "1500"}, 2),
        ({"x-ratelimit-reset-requests": "6m0s"}, 360),
        ({"x-ratelimit-reset-requests": "20ms"}, 1),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "2.5s"}, 3),
        (
            {
                "x-ratelimit-reset-requests": "60s",
                "x-ratelimit-remaining-requests": "5",
                "x-ratelimit-reset-tokens": "2s",
            },
            2,
        ),
        ({"x-ratelimit-reset-requests": "tomorrow"}, None),
        ({}, None),
    ],
)
def test_a_throttled_call_waits_as_long_as_it_was_told(
    headers: dict[str, str], wait: int | None
) -> None:  # E12 P3
    failure = judged(of_status(429, headers))
    assert failure.error_class is ErrorClass.THROTTLED
    assert failure.gateway_status == 429
    assert failure.retry_after == (None if wait is None else timedelta(seconds=wait))


def test_a_span_is_read_in_the_forms_providers_write() -> None:
    assert [parse_span(text) for text in ("1h2m3s", "7.66s", "5", "", "1753000000", "-1s", "s")] == [
        3723, 7.66, 5, None, None, None, None,
    ]  # fmt: skip


def test_trouble_with_documents_is_not_held_against_the_model() -> None:  # E20
    from holdfast.resilience.outcome import Outcome, outcome_of

    assert outcome_of(judged(DocumentsUnavailable("away")), 0.1, None) is Outcome.UNCOUNTED
    assert outcome_of(judged(StoreUnavailable("away")), 0.1, None) is Outcome.UNCOUNTED
    assert outcome_of(judged(RuntimeError("ours")), 0.1, None) is Outcome.UNCOUNTED
    assert outcome_of(judged(of_status(503, {})), 0.1, None) is Outcome.FAILED
    assert outcome_of(classify(DocumentsUnavailable("away"), rules=(rule,)), 0.1, None) is Outcome.FAILED


def test_every_code_has_one_line_in_two_tenses_and_a_failed_one_promises_nothing() -> None:  # E14
    assert set(CODES) == set(Code)
    for code, known in CODES.items():
        for line in (known.trying, known.final):
            assert line.endswith(".")
            assert line.isprintable()
        assert ("tried again" in known.trying) == known.again, code
        assert "will be tried" not in known.final
    assert set(CODES) >= OUTPUT_CODES
    first, last = (failed(of_status(502, {}), attempt=n, max_attempts=4) for n in (1, 4))
    assert isinstance(first, ReportFailed)
    assert isinstance(last, ReportFailed)
    assert str(first.outcome) == message(Code.MODEL_5XX, final=False)
    assert str(last.outcome) == message(Code.MODEL_5XX, final=True)
    assert isinstance(first.outcome, Retryable)
    assert isinstance(rule(failed(Trouble(Code.NOT_JSON), attempt=1, max_attempts=4)), Fatal)


def test_the_engines_codes_have_a_public_name() -> None:  # E14
    assert public_code("EXECUTION_TIMEOUT") is Code.MODEL_TIMEOUT
    assert public_code("DATABASE") is Code.IO_ERROR
    assert public_code("WORKER_LOST") is public_code(None) is Code.UNKNOWN


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RETRY_MAX_ATTEMPTS", "0"),
        ("MODEL_URL", "localhost:8090"),
        ("MODEL_URL", "http://me:secret@host/v1"),
        ("MODEL_STREAM", "maybe"),
        ("MODEL_PRICE_IN", "free"),
        ("MODEL_RESPONSE_FORMAT", "xml"),
        ("DOCUMENTS_URL", "ftp://host/a"),
        ("WATCH_EVERY_MS", "999"),
    ],
)
def test_a_knob_that_cannot_be_read_is_named_in_one_line(variable: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"^{variable} ") as refused:
        Settings.read({variable: value})
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.anyio
@pytest.mark.slow
async def test_with_attempts_left_it_is_queued_with_its_next_time_and_without_it_has_failed(
    make_world: Callable[..., World],
) -> None:  # P2 P3
    world = make_world()
    world.provider.fault(status=500)
    async with world.working():
        row = await world.made(world.put("a.txt"))
        kinds = [event.kind for event in await world.app.events.list(job_id=row.id)]
    assert kinds == [
        "queued",
        "processing",
        "retry",
        "processing",
        "retry",
        "processing",
        "retry",
        "processing",
        "failed",
    ]
    assert (row.state, row.attempt, row.error_code) == (State.FAILED, 4, "MODEL_5XX")
    assert STATUS[row.state] == "failed"
    assert row.error_message == message(Code.MODEL_5XX, final=True)
    assert (show(row)["next_run_at"], show(row)["error_code"]) == (None, "MODEL_5XX")
    failure = {**(row.last_failure or {}), "attempt": 2}
    waits = show(replace(row, state=State.QUEUED, attempt=2, last_failure=failure))
    assert waits["next_run_at"] == row.run_at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    assert (waits["status"], waits["error_code"]) == ("queued", None)
    assert waits["message"] == message(Code.MODEL_5XX, final=False)
    assert show(replace(row, state=State.QUEUED, attempt=0, last_failure=None))["next_run_at"] is None


@pytest.mark.anyio
@pytest.mark.slow
async def test_each_fault_of_a_provider_is_told_apart(make_world: Callable[..., World]) -> None:  # P3 P4 P7
    faults: list[tuple[dict[str, Any], str]] = [
        ({"status": 500}, "MODEL_5XX"),
        ({"status": 429}, "MODEL_THROTTLED"),
        ({"status": 404}, "MODEL_4XX"),
        ({"html": True}, "MODEL_5XX"),
        ({"error_body": "server_error"}, "MODEL_5XX"),
        ({"error_body": "context_length_exceeded"}, "MODEL_4XX"),
        ({"reset": True}, "MODEL_UNREACHABLE"),
        ({"broken_stream": True}, "MODEL_UNREACHABLE"),
    ]
    world = make_world(retry_max_attempts=1, model_timeout_ms=20_000)
    async with world.working():
        for fault, code in faults:
            world.provider.fault(**fault)
            row = await world.made(world.put("a.txt"))
            assert (fault, row.state, row.error_code) == (fault, State.FAILED, code)
            assert row.error_message == message(Code(code), final=True)


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_provider_that_hangs_is_given_up_after_its_time(
    make_world: Callable[..., World],
) -> None:  # P3
    world = make_world(retry_max_attempts=1, model_timeout_ms=1_000)
    async with world.working():
        world.provider.fault(hang=True)
        row = await world.made(world.put("a.txt"))
    assert (row.state, row.error_code) == (State.FAILED, "MODEL_TIMEOUT")
    assert row.error_message == message(Code.MODEL_TIMEOUT, final=True)


@pytest.mark.anyio
@pytest.mark.slow
async def test_no_call_is_made_inside_a_wait_that_was_asked_for(
    make_world: Callable[..., World],
) -> None:  # E12
    world = make_world(worker_concurrency=2)
    world.provider.fault(status=429, retry_after=2, times=1)
    async with world.working():
        first = await world.made(world.put("a.txt"))
        assert (first.state, first.attempt) == (State.COMPLETE, 2)
        times = [call["at"] for call in world.provider.calls()]
        assert len(times) == 2
        assert times[1] - times[0] >= 2


def test_the_preset_of_the_engine_says_the_same() -> None:  # P2 E11
    for attempt in (1, 2, 3):
        for chance in (0.0, 0.3, 0.999):
            ours, theirs = (policy.backoff.delay(attempt, chance) for policy in (retry_policy(), REPORTS))
            assert ours == theirs
