"""What `import holdfast` gives, and what it must not cost."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import holdfast
from holdfast.engine.namespace import Namespace

#: Written by hand: a name that comes or goes is a decision, not an accident.
NAMES = [
    "THIS_JOB",
    "Conflict",
    "Cron",
    "DependencyHeld",
    "Every",
    "Fatal",
    "Forbidden",
    "Handle",
    "Holdfast",
    "HoldfastError",
    "Job",
    "JobFailed",
    "JobRow",
    "LeaseLost",
    "Limits",
    "Page",
    "PayloadError",
    "QuotaExceeded",
    "ResultExpired",
    "Retention",
    "Retry",
    "Retryable",
    "Snooze",
    "State",
    "StoreError",
    "StoreUnavailable",
    "Task",
    "UnknownJob",
    "UnknownTask",
    "UsageError",
    "current_job",
    "new_job_id",
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


def test_an_app_and_its_namespaces_stay_small() -> None:
    app = holdfast.Holdfast("memory://")
    members = {name for name in dir(app) if not name.startswith("_")}
    assert len(members) <= 33, sorted(members)
    namespaces = {name: value for name, value in vars(app).items() if isinstance(value, Namespace)}
    assert len(namespaces) == 13
    for name, namespace in namespaces.items():
        verbs = [verb for verb in dir(namespace) if not verb.startswith("_")]
        assert 1 <= len(verbs) <= 15, (name, verbs)
