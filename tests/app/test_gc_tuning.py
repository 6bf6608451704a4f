"""How often Python looks for garbage in a worker's process."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from holdfast import Holdfast, gc_tuning

pytestmark = pytest.mark.anyio


@pytest.fixture
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize(
    ("found", "then"),
    [
        (700, gc_tuning.YOUNG_OBJECTS),  # Python's own
        (50_000, 50_000),  # the program knows better
        (0, 0),  # the program wants none
    ],
)
async def test_a_worker_in_a_program_raises_the_threshold_as_the_command_does(
    thresholds: None, found: int, then: int
) -> None:
    gc.set_threshold(found, 10, 10)
    async with Holdfast("memory://") as app:
        app.task(name="nothing")(_nothing)
        await app.run_worker(until_idle=True)
    assert gc.get_threshold() == (then, 10, 10)


async def _nothing() -> None: ...
