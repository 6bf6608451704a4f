"""Work in threads that outlives the patience of whoever asked for it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from systems.common.threads import in_thread


async def test_what_the_work_answers_or_raises_is_told() -> None:
    assert await in_thread(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await in_thread(divmod, 7, 0)


@pytest.mark.parametrize("fails", [False, True])
async def test_whoever_is_cancelled_waits_for_the_end_of_the_work(fails: bool) -> None:
    begun, let_go, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        let_go.wait(10)
        ended.set()
        if fails:
            raise OSError("no space left")

    asking = asyncio.create_task(in_thread(work))
    assert await asyncio.to_thread(begun.wait, 10)
    asking.cancel()
    done, _ = await asyncio.wait({asking}, timeout=0.05)
    assert not done
    let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert ended.is_set()
