"""Fixtures that the tests of durations share with the tests of the same behaviour in `make test`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.e2e.faults.conftest import postgres_site, sqlite_site
from tests.e2e.faults.test_pgbouncer import pooled_site
from tests.e2e.faults.test_relay import broker, route_as_it_was
from tests.systems.reports.conftest import make_world, provider, running_provider

__all__ = [
    "broker",
    "make_world",
    "pooled_site",
    "postgres_site",
    "provider",
    "route_as_it_was",
    "running_provider",
    "sqlite_site",
]

#: `within(3, "seconds until the gateway has stopped")`
Within = Callable[[float, str], AbstractContextManager[None]]


@pytest.fixture
def within(record_property: Callable[[str, object], None]) -> Within:
    """Return a context manager that records how long its block took, and fails if that is too long."""

    @contextmanager
    def timed(seconds: float, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        spent = time.monotonic() - began
        record_property(what, round(spent, 2))
        assert spent < seconds, f"{what}: {spent:.2f}, and at most {seconds:g} are promised"

    return timed
