"""What a handler and an app can do, through the public names, with a real worker on both stores."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from holdfast import (
    Conflict,
    Fatal,
    Holdfast,
    Job,
    JobFailed,
    Snooze,
    State,
    StoreUnavailable,
    UnknownJob,
    UsageError,
    current_job,
)
from holdfast.jobs.job import Lease
from holdfast.tasks.task import Task
from tests.apps import ONCE, SOON, Database, kinds, new_app, until, work, work_and_look, working
from tests.integration import handlers

pytestmark = pytest.mark.anyio


class Parcel(msgspec.Struct):
    to: str
    when: datetime


# -- steps ----------------------------------------------------------------------------------------------------------
async def test_a_retry_goes_on_after_the_last_recorded_step(db: Database, app: Holdfast) -> None:  # E40
    calls: list[str] = []

    async def ask(question: str, *, model: str) -> dict[str, str]:
        calls.append(f"ask {model}")
        return {"answer": question[::-1]}

    def count(text: str) -> int:
        calls.append("count")
        return len(text)

    @app.task(retry=SOON)
    async def report(question: str) -> list[Any]:
        job = current_job()
        answer = await job.step("llm", ask, question, model="small")
        length = await job.step("count", count, answer["answer"])
        if job.attempt < 3:
            raise OSError("the upload failed")
        return [answer["answer"], length]

    async with app:
        handle = await report.enqueue("abc")
        await work(app)
        assert await handle.result("30s") == ["cba", 3]
    assert calls == ["ask small", "count"]


async def test_a_failed_step_is_not_recorded_and_runs_again(db: Database, app: Holdfast) -> None:  # E40
    calls: list[int] = []

    @app.task(retry=SOON)
    async def report() -> int:
        job = current_job()

        def flaky() -> int:
            calls.append(job.attempt)
            if job.attempt == 1:
                raise OSError("away")
            return job.attempt

        return int(await job.step("flaky", flaky))

    async with app:
        handle = await report.enqueue()
        await work(app)
        assert await handle.result("30s") == 2
    assert calls == [1, 2]


async def test_steps_survive_a_manual_retry_except_those_it_starts_from(
    db: Database, app: Holdfast
) -> None:  # E40 E2a
    calls: list[str] = []
    broken = True

    @app.task(retry=ONCE)
    async def report() -> None:
        job = current_job()
        for name in ("fetch", "ask", "check"):
            await job.step(name, calls.append, name)
        if broken:
            raise Fatal("the answer was nonsense", forget=["check"])

    async with app:
        handle = await report.enqueue()
        await work(app)
        assert calls == ["fetch", "ask", "check"]
        await app.jobs.retry(handle.id)
        await work(app)
        assert calls[3:] == ["check"]
        broken = False
        await app.jobs.retry(handle.id, from_step="ask")
        await work(app)
        assert calls[4:] == ["ask", "check"]
        assert (await app.jobs.get(handle.id)).generation == 3


async def test_a_job_can_be_retried_with_other_arguments(app: Holdfast) -> None:  # E33 E40 E49
    calls: list[str] = []

    @app.task(retry=ONCE)
    async def fetch(page: str, *, deep: bool = False) -> str:
        await current_job().step("load", calls.append, page)
        if page == "tyop":
            raise Fatal("no such page")
        return page

    async with app:
        handle = await fetch.enqueue("tyop", deep=True)
        await work(app)
        for wrong in ({"pagina": "typo"}, {"page": 3}, {}):
            with pytest.raises(UsageError):
                await app.jobs.retry(handle.id, args=wrong)
        assert (await app.jobs.get(handle.id)).payload == {"page": "tyop", "deep": True}
        await app.jobs.retry(handle.id, by="ann", args={"page": "typo", "deep": True})
        await work(app)
        assert await handle.result("30s") == "typo"
        assert calls == [
            "tyop",
            "typo",
        ]  # a step that was recorded for another page is not taken for this one's
        [told] = [event for event in await app.events.list(job_id=handle.id) if event.kind == "manual_retry"]
        assert (told.meta["by"], told.meta["edited"]) == ("ann", ["page"])


async def test_a_retry_takes_a_priority_as_enqueue_does(app: Holdfast) -> None:  # E33 E25

    @app.task
    async def fetch() -> None: ...

    async with app:
        handle = await fetch.options(priority="low").enqueue()
        await app.jobs.cancel(handle.id)
        for wrong in ("urgent", 1001, -1001, 1.5, True):
            with pytest.raises(UsageError, match="priority"):
                await app.jobs.retry(handle.id, priority=wrong)  # type: ignore[arg-type]
        assert (await handle.job()).generation == 1
        await app.jobs.retry(handle.id, priority="high")
        assert (await handle.job()).priority == 10


async def test_what_a_step_has_done_is_kept_while_the_store_is_away(
    db: Database, app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:  # E40
    calls: list[str] = []

    @app.task(retry=SOON)
    async def report() -> None:
        await current_job().step("llm", calls.append, "paid")

    async with app:
        store = (await app.runtime.engine()).store
        record, away = store.record_step, iter(range(3))

        async def record_step(lease: Lease, name: str, result: str) -> None:
            if next(away, None) is not None:
                raise StoreUnavailable("away")
            await record(lease, name, result)

        monkeypatch.setattr(store, "record_step", record_step)
        handle = await report.enqueue()
        await work(app)
        assert (await handle.job()).attempt == 1
        assert await store.queries.steps(handle.id) == {"llm": "null"}
    assert calls == ["paid"]


async def test_a_step_whose_result_cannot_be_stored_fails_the_attempt(
    db: Database, app: Holdfast
) -> None:  # E40
    @app.task(retry=ONCE)
    async def report() -> None:
        await current_job().step("odd", object)

    async with app:
        handle = await report.enqueue()
        await work(app)
        assert (await app.jobs.get(handle.id)).error_code == "BAD_CALL"


# -- progress, snooze, resources ------------------------------------------------------------------------------------
async def test_progress_is_seen_while_the_job_runs_and_gone_when_it_ends(
    db: Database, app: Holdfast
) -> None:  # E42
    seen: list[Any] = []

    @app.task
    async def convert() -> None:
        job = current_job()
        for percent in (10, 250, -5):
            await job.progress(percent, f"at {percent}")
            seen.append((await app.jobs.get(job.id)).progress)

    async with app:
        handle = await convert.enqueue()
        await work(app)
        assert (await app.jobs.get(handle.id)).progress is None
    assert [(p["percent"], p["message"]) for p in seen] == [(10, "at 10"), (100, "at 250"), (0, "at -5")]


async def test_a_snooze_gives_the_attempt_back(db: Database, app: Holdfast) -> None:  # E49 E9
    runs: list[int] = []

    @app.task(retry=ONCE)
    async def poll() -> str:
        runs.append(current_job().attempt)
        if len(runs) < 4:
            raise Snooze(after="1ms")
        return "ready"

    async with app:
        handle = await poll.enqueue()
        await work(app)
        assert await handle.result("30s") == "ready"
        assert (await kinds(app, handle.id)).count("snoozed") == 3
    assert runs == [1, 1, 1, 1]


async def test_the_lifespan_gives_resources_to_handlers_and_takes_them_back(
    db: Database, app: Holdfast
) -> None:  # E49
    life: list[str] = []

    @app.lifespan
    async def resources() -> AsyncIterator[dict[str, str]]:
        life.append("open")
        yield {"pool": "a pool"}
        life.append("close")

    @app.task
    async def use() -> Any:
        life.append("use")
        return current_job().resources["pool"]

    async with app:
        handle = await use.enqueue()
        await work(app)
        assert await handle.result("30s") == "a pool"
    assert life == ["open", "use", "close"]


async def test_middleware_wraps_every_attempt_the_first_outermost(db: Database, app: Holdfast) -> None:  # E49
    life: list[str] = []

    @app.middleware
    async def outer(job: Job, call: Callable[[], Awaitable[Any]]) -> Any:
        life.append(f"outer {job.task} {job.attempt}")
        try:
            return await call()
        finally:
            life.append("outer ends")

    @app.middleware
    async def inner(job: Job, call: Callable[[], Awaitable[Any]]) -> Any:
        return ["wrapped", await call()]

    @app.task(retry=SOON)
    def sync() -> str:
        job = current_job()
        if job.attempt == 1:
            raise OSError("away")
        return threading.current_thread().name

    async with app:
        handle = await sync.enqueue()
        await work(app)
        result: Any = await handle.result("30s")
    assert result[0] == "wrapped"
    assert result[1].startswith("holdfast-job")
    assert life == ["outer sync 1", "outer ends", "outer sync 2", "outer ends"]


async def test_a_middleware_may_refuse_an_attempt(db: Database, app: Holdfast) -> None:  # E49
    @app.middleware
    async def gate(job: Job, call: Callable[[], Awaitable[Any]]) -> Any:
        raise Fatal("not allowed", code="NOT_ALLOWED")

    @app.task
    async def never() -> None:
        raise AssertionError("it must not run")

    async with app:
        handle = await never.enqueue()
        await work(app)
        with pytest.raises(JobFailed, match="NOT_ALLOWED: not allowed"):
            await handle.result("30s")


# -- options --------------------------------------------------------------------------------------------------------
async def test_jobs_of_one_key_never_run_together_and_keep_their_order(
    db: Database, app: Holdfast
) -> None:  # E49
    running: set[str] = set()
    order: dict[str, list[int]] = {"ann": [], "bob": []}

    @app.task
    async def serial(key_name: str, n: int) -> None:
        assert key_name not in running
        running.add(key_name)
        await asyncio.sleep(0.002)
        order[key_name].append(n)
        running.discard(key_name)

    async with app:
        for n in range(4):
            for name in order:
                await serial.options(key=name).enqueue(name, n)
        await work(app)
        assert (await app.jobs.counts())[State.COMPLETE] == 8
    assert order == {"ann": [0, 1, 2, 3], "bob": [0, 1, 2, 3]}


async def test_tags_owner_and_arguments_find_jobs(db: Database, app: Holdfast) -> None:  # E49
    @app.task
    async def ship(order: int, note: str = "") -> None: ...

    async with app:
        first = await ship.options(tags=["eu", "vip"], owner="ann").enqueue(1, note="x")
        second = await ship.options(tags=["eu"], owner="bob").enqueue(2)

        async def found(**where: Any) -> list[str]:
            return [row.id for row in (await app.jobs.list(**where)).rows]

        assert await found(tag="vip") == [first.id]
        assert await found(tag="eu") == [second.id, first.id]
        assert await found(owner="bob") == [second.id]
        assert await found(args={"order": 1}) == [first.id]
        assert await found(args={"note": "x"}, tag="eu", state="queued", task="ship") == [first.id]
        assert await found(state="complete") == []
        assert (await app.jobs.get(first.id)).tags == ("eu", "vip")


async def test_the_next_job_of_a_key_does_not_wait_for_a_sweep(postgres_url: str) -> None:  # E49
    app = new_app(postgres_url, promote_every="1h")

    @app.task
    async def serial(n: int) -> None: ...

    async with app:
        for n in range(3):
            await serial.options(key="ann").enqueue(n)
        await work(app)
        assert (await app.jobs.counts())[State.COMPLETE] == 3


async def test_a_twin_stands_in_for_a_second_call(db: Database, app: Holdfast) -> None:  # E36
    runs: list[int] = []

    @app.task(retry=ONCE)
    async def convert(n: int) -> int:
        runs.append(n)
        if n < 0:
            raise Fatal("no")
        return n

    async with app:
        first = await convert.options(dedupe_key="doc").enqueue(1)
        again = await convert.options(dedupe_key="doc").enqueue(2)
        other = await convert.options(dedupe_key="doc", owner="ann").enqueue(3)
        assert (first.duplicate, again.duplicate, again.id, other.duplicate) == (False, True, first.id, False)
        await work(app)
        done = await convert.options(dedupe_key="doc").enqueue(4)
        assert (done.duplicate, await done.result("30s")) == (True, 1)

        failed = await convert.options(dedupe_key="bad").enqueue(-1)
        await work(app)
        fresh = await convert.options(dedupe_key="bad").enqueue(5)
        assert (fresh.duplicate, fresh.id == failed.id) == (False, False)
        with pytest.raises(Conflict) as refused:
            await app.jobs.retry(failed.id)
        assert refused.value.twin == fresh.id
        await work(app)
    assert sorted(runs) == [-1, 1, 3, 5]


async def test_the_same_arguments_are_one_job_where_the_task_says_so(
    db: Database, app: Holdfast
) -> None:  # E36
    @app.task(dedupe=True)
    async def convert(file: str, *, how: dict[str, int]) -> str:
        return file

    async with app:
        first = await convert.enqueue("a", how={"x": 1, "y": 2})
        again = await convert.enqueue(how={"y": 2, "x": 1}, file="a")
        assert (first.duplicate, again.duplicate, again.id) == (False, True, first.id)
        others = [
            await convert.enqueue("a", how={"x": 2, "y": 1}),
            await convert.options(owner="ann").enqueue("a", how={"x": 1, "y": 2}),
            await convert.options(dedupe_key="once more").enqueue("a", how={"x": 1, "y": 2}),
        ]
        assert not any(other.duplicate for other in others)
        calls = [{"file": name, "how": {}} for name in "abab"]
        many = await convert.enqueue_many(calls)
        assert [one.duplicate for one in many] == [False, False, True, True]
        await work(app)
        done = await convert.enqueue("a", how={"x": 1, "y": 2})
        assert (done.duplicate, await done.result("30s")) == (True, "a")
    assert db.count("job") == 6


async def test_a_twin_may_be_of_any_owner_where_the_task_says_so(app: Holdfast) -> None:  # E36
    @app.task(dedupe=True, dedupe_scope="task")
    async def convert(file: str) -> None: ...

    async with app:
        first = await convert.options(owner="ann").enqueue("a")
        assert (await convert.options(owner="bob").enqueue("a")).id == first.id
        keyed = await convert.options(owner="ann", dedupe_key="k").enqueue("b")
        assert (await convert.options(owner="bob", dedupe_key="k").enqueue("c")).id == keyed.id


async def test_a_twin_that_ended_long_ago_does_not_count(db: Database, app: Holdfast) -> None:  # E36
    @app.task(dedupe_for="1ms")
    async def convert() -> None: ...

    async with app:
        first = await convert.options(dedupe_key="doc").enqueue()
        await work(app)
        await asyncio.sleep(0.005)
        second = await convert.options(dedupe_key="doc").enqueue()
        assert (second.duplicate, second.id == first.id) == (False, False)
        await work(app)


async def test_many_callers_with_one_dedupe_key_make_one_job(db: Database, app: Holdfast) -> None:  # E36
    @app.task
    async def convert() -> None: ...

    async with app:
        handles = await asyncio.gather(*(convert.options(dedupe_key="doc").enqueue() for _ in range(50)))
        await work(app)
    assert len({handle.id for handle in handles}) == 1
    assert [handle.duplicate for handle in handles].count(False) == 1
    assert db.count("job") == 1


async def test_a_delayed_job_waits_for_its_time(db: Database, app: Holdfast) -> None:  # E39
    ran: dict[str, datetime] = {}

    @app.task
    async def ship(name: str) -> None:
        ran[name] = datetime.now(UTC)

    async with app:
        began = datetime.now(UTC)
        at = began + timedelta(milliseconds=80)
        await ship.options(run_at=at).enqueue("later")
        await ship.options(delay="40ms").enqueue("soon")
        await ship.enqueue("now")
        await work(app)
    assert sorted(ran) == ["later", "now", "soon"]
    assert ran["soon"] >= began + timedelta(milliseconds=40)
    assert ran["later"] >= at


async def test_types_travel_from_enqueue_to_handler_to_result(db: Database, app: Holdfast) -> None:  # E47
    seen: list[Any] = []

    @app.task
    async def ship(parcel: Parcel, *copies: int, fast: bool = False, **labels: str) -> Parcel:
        seen.append((parcel, copies, fast, labels))
        return parcel

    parcel = Parcel("Ann", datetime(2026, 1, 2, tzinfo=UTC))
    async with app:
        handle = await ship.enqueue(parcel, 1, 2, fast=True, colour="red")
        await work(app)
        assert await handle.result("30s") == parcel
    assert seen == [(parcel, (1, 2), True, {"colour": "red"})]


async def test_a_process_is_replaced_after_many_jobs_or_when_it_keeps_much_memory() -> None:  # E49
    app = new_app("memory://", child_jobs=3, child_memory=300_000_000)
    leaks = app.task(handlers.leaks, execute="process")  # type: ignore[call-overload]
    async with app:
        jobs = await leaks.enqueue_many([1, 1, 1, 400, 1])
        await app.run_worker(until_idle=True, concurrency=1)
        first, second, third, fourth, fifth = [await job.result() for job in jobs]
    assert first == second == third
    assert len({third, fourth, fifth}) == 3


async def test_a_worker_has_the_shortest_lease_of_the_tasks_it_serves() -> None:  # E30
    app = new_app("memory://", lease="60s")
    for queue, lease in (("brief", "6s"), ("long", "10m"), ("plain", None)):
        app.task(name=queue, queue=queue, lease=lease)(_nothing)
    async with app:
        found = {}
        for queues in (["brief", "long"], ["long"], ["long", "plain"], None):
            async with working(app, queues=queues):
                await until(app.queues.workers)
                [worker] = await app.queues.workers()
                found[str(queues)] = round((worker.expires_at - worker.started_at).total_seconds())
    assert list(found.values()) == [6, 600, 60, 6]


async def _nothing() -> None: ...


async def test_the_job_is_given_to_a_handler_that_asks_for_it(db: Database, app: Holdfast) -> None:  # E49
    @app.task
    async def ask(n: int, job: Job) -> list[Any]:
        return [n, job.id, job.attempt, job.task, job.queue, job.owner, job.generation, job.max_attempts]

    @app.task
    def ask_in_a_thread(job: Job) -> list[Any]:
        return [job.id, current_job() is job]

    in_thread: Task[Any, Any] = ask_in_a_thread
    untyped: Task[Any, Any] = ask
    async with app:
        handle = await untyped.options(owner="ann", queue="q").enqueue(1)
        threaded = await in_thread.enqueue()
        await work(app)
        assert await handle.result("30s") == [1, handle.id, 1, "ask", "q", "ann", 1, 5]
        assert await threaded.result("30s") == [threaded.id, True]


# -- sync code ------------------------------------------------------------------------------------------------------
def test_every_verb_has_a_plain_call(db: Database, app: Holdfast) -> None:  # E49
    @app.task(retry=ONCE)
    async def ship(order: int) -> int:
        if order < 0:
            raise Fatal("no such order")
        return order * 2

    one = ship.enqueue_sync(1)
    many = ship.enqueue_many_sync([2, 3])
    bad = ship.options(owner="ann", dedupe_key="k").enqueue_sync(-1)
    assert ship.options(owner="ann", dedupe_key="k").enqueue_sync(-1).duplicate
    assert app.sync.jobs.counts()[State.QUEUED] == 4
    asyncio.run(work_and_look(app))
    assert [app.sync.jobs.result(handle.id, "5s") for handle in (one, *many)] == [2, 4, 6]
    assert app.sync.jobs.get(one.id).state is State.COMPLETE
    assert [row.id for row in app.sync.jobs.list(state="failed").rows] == [bad.id]
    assert [letter.id for letter in app.sync.dead_letters.list()] == [bad.id]
    assert [event.kind for event in app.sync.events.list(job_id=one.id)] == [
        "queued",
        "processing",
        "complete",
    ]
    assert app.sync.dead_letters.redrive(ids=bad.id) == 1
    app.sync.jobs.cancel(bad.id)
    assert app.sync.jobs.retry(bad.id) == 1
    with pytest.raises(Conflict):
        app.sync.jobs.retry(one.id)
    with pytest.raises(UnknownJob):
        app.sync.jobs.get(app.runtime.new_id())
    asyncio.run(work_and_look(app))
    with pytest.raises(JobFailed):
        app.sync.jobs.result(bad.id, "5s")


def test_sync_enqueues_from_many_threads_are_all_stored_once(db: Database, app: Holdfast) -> None:  # E46
    @app.task
    async def ship(order: int) -> int:
        return order

    def send(start: int) -> None:
        for n in range(start, start + 10):
            ship.enqueue_sync(n)

    threads = [threading.Thread(target=send, args=(start,)) for start in range(0, 80, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(work_and_look(app))
    assert app.sync.jobs.counts()[State.COMPLETE] == 80


async def test_a_handler_may_enqueue_sync_from_its_thread(db: Database, app: Holdfast) -> None:  # E49
    @app.task
    async def child(n: int) -> int:
        return n + 1

    @app.task
    def parent() -> str:
        return child.enqueue_sync(1).id

    async with app:
        handle = await parent.enqueue()
        await work(app)
        assert (await app.jobs.get(await handle.result("30s"))).result == 2


async def test_two_apps_on_one_database_share_the_work(db: Database) -> None:  # E50
    apps = [new_app(db.url), new_app(db.url)]
    ran: list[tuple[int, int]] = []
    tasks: list[Task[Any, Any]] = []
    both = asyncio.Event()
    for place, app in enumerate(apps):

        @app.task(timeout="20s")
        async def ship(order: int, place: int = place) -> None:
            ran.append((order, place))
            if {place for _, place in ran} == {0, 1}:
                both.set()
            await both.wait()

        tasks.append(ship)
    async with apps[0], apps[1]:
        await tasks[0].enqueue_many(list(range(60)))
        await asyncio.gather(*(work(app, concurrency=3) for app in apps))
    assert sorted(order for order, _ in ran) == list(range(60))
    assert {place for _, place in ran} == {0, 1}


async def test_a_job_of_nearly_a_megabyte_wakes_a_worker(db: Database, app: Holdfast) -> None:  # E51
    @app.task
    async def weigh(text: str) -> int:
        return len(text)

    async with app, working(app):
        handle = await weigh.enqueue("x" * 900_000)  # what wakes a worker carries nothing of it
        async with asyncio.timeout(20):
            assert await handle.result() == 900_000
