"""Operations with a canary, a ramp, a bound on failures, a patch: in memory on a manual clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import Forbidden, Holdfast, UsageError
from holdfast.engine.batches import SPAN
from holdfast.engine.engine import Engine
from holdfast.engine.operation import Operation, Progress
from holdfast.engine.tables import operations
from holdfast.errors import StoreUnavailable, UnknownTask
from holdfast.jobs.job import Lane, Settlement
from holdfast.jobs.verdict import Bury, Complete, Failure
from holdfast.maintenance.operations import OperationRunner
from holdfast.resilience.pacing import MOST_UNENDED, Phase
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock

pytestmark = pytest.mark.anyio
LANE = Lane("default", "convert")


class World:
    """An app with the task `convert`, whose jobs end as the test says."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.app = Holdfast("memory://", store=self.store, clock=self.clock)
        self.refused_owner = "eve"

        def rule(owner: str | None, args: Any) -> None:
            if owner == self.refused_owner or args["mapping"] == "secret":
                raise Forbidden("not for you")

        @self.app.task(check=rule, retry=1)
        async def convert(pdf: str, mapping: str = "jats", pages: dict[str, int] | None = None) -> None: ...

        self.convert = convert

    async def open(self) -> None:
        self.engine: Engine = await self.app.runtime.engine()
        self.duty = OperationRunner(self.engine)

    async def bury(self, count: int, **options: Any) -> list[str]:
        handles = await self.convert.options(**options).enqueue_many([f"{n}.pdf" for n in range(count)])
        await self.end_all(fails=True)
        return [handle.id for handle in handles]

    async def end(self, count: int, *, fails: bool = False, queue: str = "default") -> int:
        """End this many of the jobs that are due, and return how many there were."""
        session = await self.store.open_session("w", SPAN)
        claimed = await self.store.claim(
            session, [LANE._replace(queue=queue, fair=fair) for fair in (False, True)], count
        )
        verdict = Bury(Failure.of("TIMEOUT")) if fails else Complete("null")
        await self.store.settle([Settlement(one.lease, verdict) for one in claimed])
        return len(claimed)

    async def end_all(self, *, fails: bool = False) -> int:
        return await self.end(10_000, fails=fails)

    async def begin(self, action: str = "redrive", **options: Any) -> Operation:
        begun = await self.app.operations.begin(action, **options)
        self.clock.advance("1ms")
        return begun

    async def step(self, passes: str = "1s") -> None:
        self.clock.advance(passes)
        await self.duty.run()

    async def look(self, operation: Operation) -> Operation:
        return await self.app.operations.get(operation.id)

    async def events(self, kind: str) -> list[dict[str, Any]]:
        return [event.meta for event in await self.app.events.list(limit=10_000) if event.kind == kind]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    async with made.app:
        await made.open()
        yield made


async def test_the_others_wait_until_the_canary_has_ended(world: World) -> None:  # E32
    await world.bury(20)
    begun = await world.begin(canary=5)
    assert begun.options["stop_above"] == 0.2
    for ended in (3, 2):
        await world.step()
        now = await world.look(begun)
        assert (now.phase, now.done) == (Phase.CANARY, 5)
        assert await world.end(ended) == ended
    await world.step()
    now = await world.look(begun)
    assert (now.phase, now.done, now.ended, now.failed_again) == (Phase.WATCHING, 20, 5, 0)
    assert await world.end_all() == 15
    await world.step()
    now = await world.look(begun)
    assert (now.progress, now.phase, now.ended) == (Progress.DONE, None, 20)


async def test_a_canary_that_fails_again_stops_it_and_says_why(world: World) -> None:  # E32
    await world.bury(20)
    begun = await world.begin(canary=5, by="ann")
    await world.step()
    await world.end(2, fails=True)
    await world.step()
    now = await world.look(begun)
    assert (now.progress, now.done, now.failed_again) == (Progress.STOPPED, 5, 2)
    assert now.error == "2 of the canary of 5 failed again; at most 20% may"
    await world.step("1h")
    assert len(await world.events("redriven")) == 5
    assert [(one["by"], one["matched"]) for one in await world.events("operation_began")] == [("ann", 20)]
    [ended] = await world.events("operation_ended")
    assert (ended["progress"], ended["done"], ended["reason"]) == ("stopped", 5, now.error)


async def test_it_stops_when_too_many_of_the_last_fifty_fail_again(world: World) -> None:  # E32
    await world.bury(300)
    begun = await world.begin(rate=10, stop_above=0.2)
    done = 0
    while (now := await world.look(begun)).progress is Progress.RUNNING:
        await world.step()
        done += await world.end_all(fails=done >= 60)
        assert done < 300
    assert (now.progress, now.error) == (
        Progress.STOPPED,
        "11 of the last 50 that ended failed again; at most 20% may",
    )
    assert now.done <= 60 + 11 + 20


async def test_a_ramp_doubles_each_minute_up_to_its_rate(world: World) -> None:  # E32
    await world.bury(750)
    begun = await world.begin(ramp_from=10 / 60, rate=200 / 60)
    done, per_minute, rates, now = 0, list[int](), list[int](), begun
    for _ in range(7):
        for _ in range(120):
            await world.step("500ms")
            await world.end_all()
        now = await world.look(begun)
        per_minute.append(now.done - done)
        done = now.done
        rates.append(round((now.current_rate or 0) * 60))
    assert rates[-1] == 200
    for jobs, most in zip(per_minute, (10, 20, 40, 80, 160, 200, 200), strict=True):
        assert most * 0.9 <= jobs <= most * 1.1 + 1, per_minute
    assert now.next_at is not None


async def test_no_more_than_a_bound_are_moved_while_none_of_them_ends(world: World) -> None:  # E32
    await world.bury(MOST_UNENDED + 40)
    begun = await world.begin(stop_above=0.5)
    for _ in range(5):
        await world.step("30s")
    assert (await world.look(begun)).done == MOST_UNENDED
    await world.end_all()
    await world.step()
    assert (await world.look(begun)).done == MOST_UNENDED + 40


@pytest.mark.parametrize("lost", ["the choice", "the moves"])
async def test_killed_in_the_middle_it_moves_each_job_once_and_counts_it_once(
    world: World, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:  # E32 E6
    await world.bury(30)
    begun = await world.begin(canary=5)
    advance, calls = operations.advance, 0

    async def killed(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == (1 if lost == "the choice" else 2):
            raise StoreUnavailable("gone")
        return await advance(*given)

    with monkeypatch.context() as patch:
        patch.setattr(operations, "advance", killed)
        with pytest.raises(StoreUnavailable):
            await world.step()
    moved = len(await world.events("redriven"))
    assert moved == (0 if lost == "the choice" else 5)
    await world.end(2)  # before anybody goes on
    await world.step(str(SPAN.total_seconds()) + "s")
    now = await world.look(begun)
    assert (now.done, len(await world.events("redriven"))) == (5, 5)
    await world.end_all()
    await world.step()
    assert (await world.look(begun)).done == 30
    await world.end_all()
    await world.step()
    now = await world.look(begun)
    assert (now.progress, now.done, now.ended, now.refused) == (Progress.DONE, 30, 30, 0)
    assert {row.generation for row in (await world.app.jobs.list()).rows} == {2}


async def test_two_processes_move_each_job_once(world: World) -> None:  # E32
    await world.bury(40)
    begun = await world.begin(rate=20, canary=3)
    other = OperationRunner(world.engine)
    while (await world.look(begun)).progress is Progress.RUNNING:
        world.clock.advance("250ms")
        await asyncio.gather(world.duty.run(), other.run())
        await world.end_all()
    now = await world.look(begun)
    assert (now.progress, now.done, now.ended) == (Progress.DONE, 40, 40)
    assert len(await world.events("redriven")) == 40


async def test_a_process_that_was_frozen_does_not_move_its_choice_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # E32 E4
    await world.bury(5)
    begun = await world.begin(canary=5)
    advance = operations.advance

    async def frozen(*given: Any) -> Any:
        answer = await advance(*given)
        monkeypatch.undo()
        world.clock.advance(SPAN)
        await OperationRunner(world.engine).run()  # another process goes on, and these jobs fail once more
        await world.end(1, fails=True)
        return answer

    monkeypatch.setattr(operations, "advance", frozen)
    await world.step()
    assert len(await world.events("redriven")) == 5
    assert (await world.look(begun)).done == 5


async def test_a_cancelled_one_moves_no_more_and_says_who_cancelled_it(world: World) -> None:  # E32
    await world.bury(20)
    begun = await world.begin(canary=5)
    await world.step()
    cancelled = await world.app.operations.cancel(begun.id, by="bob")
    await world.end_all()
    await world.step("1h")
    assert (await world.look(begun)).done == cancelled.done == 5
    assert [one["by"] for one in await world.events("operation_ended")] == ["bob"]


async def test_the_same_call_repeated_begins_one_operation_and_records_it_once(world: World) -> None:  # E6
    await world.bury(3)
    begun = [await world.begin(canary=1, token="t") for _ in range(2)]
    assert begun[0] == begun[1]
    assert len(await world.events("operation_began")) == 1


async def test_what_is_skipped_is_counted_by_reason_and_is_no_part_of_the_canary(world: World) -> None:  # E32
    world.refused_owner = ""
    await world.bury(3, owner="eve")
    await world.bury(3, owner="ann", dedupe_key="one")
    await world.bury(4)
    world.refused_owner = "eve"
    begun = await world.begin(canary=4)
    for _ in range(4):
        await world.step()
        await world.end_all()
    await world.step("2s")
    now = await world.look(begun)
    assert now.skipped["forbidden"] == 3
    assert now.refused == sum(now.skipped.values())
    assert now.progress is Progress.DONE


async def test_retries_have_a_pace_too(world: World) -> None:  # E32 E33
    await world.bury(10)
    begun = await world.begin("retry", canary=2)
    await world.step()
    await world.end_all()
    await world.step()
    await world.end_all()
    await world.step()
    now = await world.look(begun)
    assert (now.progress, now.done, len(await world.events("manual_retry"))) == (Progress.DONE, 10, 10)


# -- patches ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("action", ["redrive", "retry"])
async def test_a_patch_changes_the_arguments_of_each_job(world: World, action: str) -> None:  # E32
    ids = await world.bury(3)
    patch = {"mapping": "tei", "pages": {"from": 2}}
    begun = await world.begin(action, task="convert", patch=patch)
    await world.step()
    assert (await world.look(begun)).done == 3
    for number, job_id in enumerate(ids):
        row = await world.app.jobs.get(job_id)
        assert row.payload == {"pdf": f"{number}.pdf", "mapping": "tei", "pages": {"from": 2}}
        assert (await world.app.events.list(job_id=job_id))[-1].meta["edited"] == ["mapping", "pages"]


async def test_a_job_whose_patched_arguments_do_not_fit_or_are_forbidden_stays(world: World) -> None:  # E32
    ids = await world.bury(2)
    for patch, reason in (
        ({"pages": {"from": "two"}}, "arguments"),
        ({"pdf": None}, "arguments"),
        ({"mapping": "secret"}, "forbidden"),
    ):
        found = await world.app.operations.preview("redrive", task="convert", patch=patch)
        assert found.skipped == {reason: 2}
        begun = await world.begin(task="convert", patch=patch)
        await world.step()
        now = await world.look(begun)
        assert (now.progress, now.skipped) == (Progress.DONE, {reason: 2})
    assert (await world.app.jobs.get(ids[0])).payload == {"pdf": "0.pdf"}


async def test_a_process_that_lacks_the_task_leaves_a_patch_to_others(world: World) -> None:  # E32
    await world.bury(2)
    begun = await world.begin(task="convert", patch={"mapping": "tei"})
    tasks = dict(world.engine.tasks)
    world.engine.tasks.clear()
    await world.step()
    now = await world.look(begun)
    assert (now.progress, now.done, now.refused) == (Progress.RUNNING, 0, 0)
    world.engine.tasks.update(tasks)
    await world.step()
    assert (await world.look(begun)).done == 2


async def test_a_redrive_into_another_queue_takes_its_patch_along(world: World) -> None:  # E32
    await world.bury(6)
    begun = await world.begin(task="convert", to_queue="slow", patch={"mapping": "tei"}, canary=2)
    await world.step()
    assert await world.end(10, queue="slow") == 2
    await world.step()
    assert await world.end(10, queue="slow") == 4
    await world.step()
    assert (await world.look(begun)).progress is Progress.DONE


# -- previews -----------------------------------------------------------------------------------------------------------
async def test_a_preview_says_how_many_which_are_skipped_and_shows_some(world: World) -> None:  # E32
    world.refused_owner = ""
    await world.bury(7)
    eve = await world.bury(2, owner="eve")
    world.refused_owner = "eve"
    patch = {"mapping": "tei"}
    found = await world.app.operations.preview(
        "redrive", task="convert", patch=patch, to_queue="slow", rate=2, ramp_from=1
    )
    assert (found.matched, found.is_capped, found.skipped, found.checked) == (9, False, {"forbidden": 2}, 9)
    assert (found.queues, found.waiting, found.lasts and found.lasts.total_seconds()) == (["slow"], 0, 7)
    assert len(found.sample) == 5
    [first, *_] = found.sample
    assert (first.before, first.after, first.error_code) == ({}, {"mapping": "tei"}, "TIMEOUT")
    [refused, _] = (await world.app.operations.preview("redrive", task="convert", ids=eve)).sample
    assert (refused.skipped, refused.owner) == ("forbidden", "eve")
    assert await world.app.operations.list() == []
    assert await world.events("redriven") == []


async def test_a_preview_of_retries_leaves_out_what_runs_or_is_due(world: World) -> None:  # E33
    await world.bury(1)
    await world.convert.options(delay="1h").enqueue("later.pdf")
    await world.convert.enqueue_many(["now.pdf", "runs.pdf"])
    session = await world.store.open_session("w", SPAN)
    assert len(await world.store.claim(session, [LANE], 1)) == 1
    found = await world.app.operations.preview("retry", state=["failed", "queued", "processing"])
    assert (found.matched, found.skipped) == (4, {"processing": 1, "due": 1})


async def test_a_preview_says_how_long_the_queue_needs(world: World) -> None:  # E32
    await world.convert.enqueue_many([f"{n}.pdf" for n in range(11)])
    for _ in range(11):
        assert await world.end(1) == 1
        world.clock.advance("3s")
    assert (await world.app.operations.preview("redrive")).drains_in is None  # nothing to move
    await world.bury(10)
    await world.convert.enqueue_many(["a.pdf", "b.pdf"])
    found = await world.app.operations.preview("redrive")
    assert (found.waiting, found.drains_in and found.drains_in.total_seconds()) == (2, 36)


async def test_a_preview_counts_up_to_a_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:  # E32
    await world.bury(12)
    for most, capped in ((11, True), (12, False)):
        monkeypatch.setattr("holdfast.engine.previews.MOST_COUNTED", most)
        for action in ("redrive", "retry"):
            found = await world.app.operations.preview(action)
            assert (found.matched, found.is_capped) == (most, capped)


async def test_a_long_argument_is_cut_in_a_preview(world: World) -> None:  # E32
    await world.convert.enqueue("x" * 100_000)
    await world.end_all(fails=True)
    found = await world.app.operations.preview("redrive", task="convert", patch={"pdf": "a.pdf"})
    assert len(found.sample[0].before["pdf"]) < 3000
    assert found.sample[0].after == {"pdf": "a.pdf"}
    patch = {"pages": {str(number): number for number in range(1000)}}
    found = await world.app.operations.preview("redrive", task="convert", patch=patch)
    assert found.sample[0].after == {"pages": "… (9,781 characters of JSON)"}


@pytest.mark.parametrize(
    ("action", "options", "words"),
    [
        ("cancel", {"canary": 5}, "canary is for redrive and retry"),
        ("discard", {"reason": "x", "patch": {"a": 1}}, "patch is for redrive and retry"),
        ("redrive", {"canary": 0}, "canary is 0"),
        ("redrive", {"canary": MOST_UNENDED + 1}, "canary is 501"),
        ("redrive", {"ramp_from": 1}, "say with rate="),
        ("redrive", {"ramp_from": 2, "rate": 1}, "ramp_from is 2"),
        ("redrive", {"stop_above": 2}, "stop_above is 2"),
        ("redrive", {"stop_above": float("nan")}, "stop_above is nan"),
        ("redrive", {"patch": {"mapping": "tei"}}, "say which task the patch is for"),
        ("redrive", {"task": "convert", "patch": []}, "patch is \\[\\]"),
        ("redrive", {"task": "convert", "patch": {}}, "the patch is empty"),
        ("redrive", {"task": "convert", "patch": {"maping": "tei"}}, "has no argument maping"),
        ("redrive", {"task": "convert", "patch": {"mapping": float("nan")}}, "the patch cannot be stored"),
    ],
)
async def test_what_cannot_be_done_is_refused_in_one_line(
    world: World, action: str, options: dict[str, Any], words: str
) -> None:  # E32
    for verb in (world.app.operations.begin, world.app.operations.preview):
        with pytest.raises(UsageError, match=words) as refused:
            await verb(action, **options)
        assert "\n" not in str(refused.value)
    assert await world.app.operations.list() == []


async def test_a_patch_is_for_tasks_of_this_app_and_not_for_the_engines_own(world: World) -> None:  # E66
    with pytest.raises(UnknownTask, match="no task named 'other'"):
        await world.begin(task="other", patch={"a": 1})
    with pytest.raises(Forbidden, match="the engine's own"):
        await world.begin(task="holdfast.webhook", patch={"a": 1})
