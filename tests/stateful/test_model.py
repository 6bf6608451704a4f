"""The stateful test: whatever workers, people and the clock do, in any order, the store keeps its promises."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.stateful.benches import memory_benches, postgres_benches, sqlite_benches
from tests.stateful.machine import Machine

#: A story that fails is made shorter first, which takes longer than all that succeed.
pytestmark = pytest.mark.timeout(300)


def plenty(examples: int, steps: int = 50) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate, Phase.shrink],  # explaining a failure costs more than it tells
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    private = asyncio.new_event_loop()
    yield private
    private.close()


def test_the_memory_store_keeps_its_promises(
    loop: asyncio.AbstractEventLoop,
) -> None:  # E2 E3 E4 E5 E6 E9 E60
    class OnMemory(Machine):
        make_bench = staticmethod(memory_benches(loop))

    run_state_machine_as_test(OnMemory, settings=plenty(80))


def test_the_sqlite_store_keeps_its_promises(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:  # E2 E3 E4 E5 E6 E9 E50 E60
    class OnSqlite(Machine):
        make_bench = staticmethod(sqlite_benches(loop, tmp_path))

    run_state_machine_as_test(OnSqlite, settings=plenty(40))


def test_the_postgres_store_keeps_its_promises(
    loop: asyncio.AbstractEventLoop, postgres_url: str
) -> None:  # E2 E3 E4 E5 E6 E9 E51 E60
    make, close = postgres_benches(loop, postgres_url)

    class OnPostgres(Machine):
        make_bench = staticmethod(make)

    try:
        run_state_machine_as_test(OnPostgres, settings=plenty(10))
    finally:
        close()
