"""What `import holdfast` gives, and what it must not cost."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import holdfast

#: Written by hand: a name that comes or goes is a decision, not an accident.
NAMES = [
    "MOVES",
    "THIS_JOB",
    "Admit",
    "Artifact",
    "Attempt",
    "BreakerPolicy",
    "BudgetPolicy",
    "Conflict",
    "Cron",
    "DeadLetter",
    "Delivered",
    "DependencyCall",
    "DependencyHeld",
    "Done",
    "Event",
    "Every",
    "ExternalTask",
    "Failed",
    "Fatal",
    "Forbidden",
    "GateRequest",
    "Handle",
    "Hold",
    "Holdfast",
    "HoldfastError",
    "Job",
    "JobFailed",
    "JobRow",
    "LateResult",
    "LeaseLost",
    "Limit",
    "LimiterPolicy",
    "Limits",
    "Message",
    "MoveNotice",
    "Notice",
    "Page",
    "PayloadError",
    "Reject",
    "ReportResult",
    "ReportStatus",
    "Requeue",
    "ResultExpired",
    "Retention",
    "Retry",
    "Retryable",
    "SchemaMismatch",
    "Snooze",
    "State",
    "StoreError",
    "StoreUnavailable",
    "StuckJob",
    "Task",
    "Transaction",
    "Undelivered",
    "UnknownJob",
    "UnknownTask",
    "UsageError",
    "Window",
    "Windows",
    "WorkerRow",
    "current_job",
    "exponential",
    "fixed",
    "polynomial",
    "table",
]

#: Front doors and drivers: who does not use them does not pay for them.
HEAVY = (
    "fastapi",
    "pydantic",
    "starlette",
    "asyncpg",
    "psycopg",
    "rich",
    "typer",
    "click",
    "sqlalchemy",
    "django",
    "prometheus_client",
    "opentelemetry",
)


def loaded_by(code: str) -> set[str]:
    """The modules that are loaded after *code* ran in a fresh interpreter."""
    tell = f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", tell], capture_output=True, text=True, check=True)
    names: list[str] = json.loads(done.stdout)
    return {name.partition(".")[0] for name in names}


def test_the_public_names_are_these() -> None:
    assert holdfast.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_public_name_can_be_imported(name: str) -> None:
    assert hasattr(holdfast, name)
    assert holdfast._HOMES[name].startswith("holdfast.")


def test_no_public_name_is_hidden() -> None:
    assert set(holdfast._HOMES) == set(NAMES)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = holdfast.Nonsense
    assert not hasattr(holdfast, "nonsense")


def test_star_import_gives_them_all() -> None:
    names: dict[str, object] = {}
    exec("from holdfast import *", names)
    assert set(NAMES) <= set(names)


def test_importing_holdfast_loads_neither_front_doors_nor_drivers() -> None:
    assert loaded_by("import holdfast").isdisjoint(HEAVY)


@pytest.mark.parametrize("url", ["memory://", "sqlite:///x.db"])
def test_an_app_without_postgres_loads_neither_front_doors_nor_drivers(url: str) -> None:
    loaded = loaded_by(f"from holdfast import *; Holdfast({url!r})")
    # structlog loads rich by itself where that is installed, for its tracebacks.
    assert loaded.isdisjoint(set(HEAVY) - {"rich"})


def test_importing_holdfast_alone_loads_next_to_nothing() -> None:
    loaded = loaded_by("import holdfast")
    assert loaded.isdisjoint({"asyncio", "msgspec", "structlog", "sqlite3", "httpx2"})
