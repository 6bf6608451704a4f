"""Group writes: who comes while one is under way travels with the next, and is answered by its own."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Sequence

import pytest

from holdfast.engine.coalesce import Coalescer
from holdfast.errors import StoreUnavailable


class Ledger:
    """A write that ends when told. Answers each item with its double."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gates: list[asyncio.Future[None]] = []

    async def write(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        gate = asyncio.get_running_loop().create_future()
        self.gates.append(gate)
        await gate
        return [item * 2 for item in items]

    async def began(self, number: int) -> None:
        """Until the *number*-th write is under way: every task that can go on goes on."""
        for _ in range(50):
            if len(self.gates) >= number:
                return
            await asyncio.sleep(0)
        raise AssertionError(f"only {len(self.gates)} writes began")

    async def end(self, number: int, error: BaseException | None = None) -> None:
        await self.began(number)
        gate = self.gates[number - 1]
        if error is None:
            gate.set_result(None)
        else:
            gate.set_exception(error)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_lone_item_leaves_at_once(ledger: Ledger) -> None:  # E46
    coalescer = Coalescer(ledger.write)
    answer = coalescer.put(1)
    await ledger.began(1)
    assert ledger.batches == [[1]]
    await settle()
    assert not answer.done()  # not before its commit
    await ledger.end(1)
    assert await answer == 2


async def test_what_arrives_meanwhile_travels_together(ledger: Ledger) -> None:  # E46
    coalescer = Coalescer(ledger.write)
    first = coalescer.put(1)
    await ledger.began(1)
    rest = [coalescer.put(n) for n in (2, 3, 4)]
    await settle()
    assert ledger.batches == [[1]]  # one write at a time
    await ledger.end(1)
    await ledger.began(2)
    assert ledger.batches == [[1], [2, 3, 4]]
    assert first.done()
    assert not any(answer.done() for answer in rest)
    await ledger.end(2)
    assert await asyncio.gather(*rest) == [4, 6, 8]


async def test_nobody_is_answered_before_the_write_that_holds_its_item_has_ended(
    ledger: Ledger,
) -> None:  # E6 E46
    """A lone caller, who writes by itself, and those who come meanwhile, however they call."""
    coalescer = Coalescer(ledger.write)
    alone = asyncio.ensure_future(coalescer.do(1))
    await ledger.began(1)
    behind = [asyncio.ensure_future(coalescer.do(2)), coalescer.put(3)]
    await settle()
    assert not any(answer.done() for answer in (alone, *behind))
    await ledger.end(1)
    await ledger.began(2)
    await settle()
    assert alone.done()
    assert not any(answer.done() for answer in behind)
    await ledger.end(2)
    assert await asyncio.gather(alone, *behind) == [2, 4, 6]


async def test_a_batch_has_a_limit(ledger: Ledger) -> None:
    coalescer = Coalescer(ledger.write, most=2)
    answers = [coalescer.put(n) for n in range(5)]
    for number in (1, 2, 3):
        await ledger.end(number)
    assert await asyncio.gather(*answers) == [0, 2, 4, 6, 8]
    assert ledger.batches == [[0, 1], [2, 3], [4]]


async def test_an_error_reaches_exactly_the_callers_of_its_batch(ledger: Ledger) -> None:
    coalescer = Coalescer(ledger.write)
    first = coalescer.put(1)
    await ledger.began(1)
    second, third = coalescer.put(2), coalescer.put(3)
    await ledger.end(1)
    await ledger.began(2)
    fourth = coalescer.put(4)
    await ledger.end(2, StoreUnavailable("no"))
    await ledger.end(3)
    answers = await asyncio.gather(first, second, third, fourth, return_exceptions=True)
    assert [answers[0], answers[3]] == [2, 8]
    assert [str(answer) for answer in answers[1:3]] == ["no", "no"]
    assert ledger.batches == [[1], [2, 3], [4]]


async def test_an_item_that_cannot_be_written_does_not_take_its_neighbours_down() -> None:
    async def write(items: Sequence[int]) -> list[int]:
        if 2 in items:
            raise ValueError("not 2")
        return [item * 2 for item in items]

    coalescer = Coalescer(write)
    answers = [coalescer.put(n) for n in (1, 2, 3)]
    first, second, third = await asyncio.gather(*answers, return_exceptions=True)
    assert (first, third) == (2, 6)
    assert isinstance(second, ValueError)


async def test_an_error_nobody_waits_for_makes_no_noise(ledger: Ledger) -> None:
    said: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: said.append(context))
    coalescer = Coalescer(ledger.write)
    unheard = coalescer.put(1)
    await ledger.end(1, OSError("no"))
    await coalescer.flushed()
    del unheard
    gc.collect()
    assert said == []


async def test_a_cancelled_caller_does_not_lose_the_answers_of_others(ledger: Ledger) -> None:
    coalescer = Coalescer(ledger.write)
    blocker = coalescer.put(0)
    await ledger.began(1)
    callers = [asyncio.ensure_future(_wait(coalescer.put(n))) for n in (1, 2, 3)]
    await settle()
    callers[1].cancel()
    await ledger.end(1)
    await ledger.end(2)
    answers = await asyncio.gather(blocker, *callers, return_exceptions=True)
    assert answers[:2] == [0, 2]
    assert isinstance(answers[2], asyncio.CancelledError)
    assert answers[3] == 6
    assert ledger.batches[1] == [1, 2, 3]  # what was handed over is written


async def _wait(answer: asyncio.Future[int]) -> int:
    return await answer


async def test_a_lone_caller_writes_by_itself_and_others_follow(ledger: Ledger) -> None:  # E46
    coalescer = Coalescer(ledger.write)
    lone = asyncio.ensure_future(coalescer.do(1))
    await ledger.began(1)
    others = [asyncio.ensure_future(coalescer.do(n)) for n in (2, 3)]
    await settle()
    answer = coalescer.put(4)
    await settle()
    assert ledger.batches == [[1]]
    await ledger.end(1)
    await ledger.end(2)
    assert await lone == 2
    assert await asyncio.gather(*others, answer) == [4, 6, 8]
    assert ledger.batches == [[1], [2, 3, 4]]


@pytest.mark.parametrize("how", ["error", "cancel"])
async def test_a_lone_caller_that_comes_to_grief_does_not_strand_the_others(ledger: Ledger, how: str) -> None:
    coalescer = Coalescer(ledger.write)
    lone = asyncio.ensure_future(coalescer.do(1))
    await ledger.began(1)
    other = asyncio.ensure_future(coalescer.do(2))
    await settle()
    if how == "cancel":
        lone.cancel()
    else:
        await ledger.end(1, OSError("no"))
    await ledger.end(2)
    with pytest.raises((OSError, asyncio.CancelledError)):
        await lone
    assert await other == 4


async def test_flushed_waits_for_all_that_was_handed_over(ledger: Ledger) -> None:
    coalescer = Coalescer(ledger.write, most=1)
    await coalescer.flushed()  # nothing is under way
    answers = [coalescer.put(n) for n in (1, 2)]
    flushed = asyncio.ensure_future(coalescer.flushed())
    await ledger.end(1)
    await settle()
    assert not flushed.done()
    await ledger.end(2)
    await flushed
    assert [answer.result() for answer in answers] == [2, 4]


async def test_it_starts_again_after_it_was_idle(ledger: Ledger) -> None:
    coalescer = Coalescer(ledger.write)
    for number in (1, 2, 3):
        answer = coalescer.put(number)
        await ledger.end(number)
        assert await answer == number * 2
        await coalescer.flushed()


async def test_many_callers_need_few_writes() -> None:  # E46
    batches: list[int] = []

    async def write(items: Sequence[int]) -> list[int]:
        batches.append(len(items))
        await asyncio.sleep(0)
        return list(items)

    slow: Callable[[Sequence[int]], Awaitable[Sequence[int]]] = write
    coalescer = Coalescer(slow)
    answers = await asyncio.gather(*(coalescer.do(n) for n in range(1000)))
    assert answers == list(range(1000))
    assert sum(batches) == 1000
    assert len(batches) <= 3
