"""The testing kit: what a user's tests see is the real engine."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast.testing
from holdfast import THIS_JOB, Fatal, Holdfast, Job, Retry, Snooze, UnknownTask, UsageError, current_job
from holdfast.testing import (
    ManualClock,
    app_in_memory,
    assert_completed,
    assert_dead,
    assert_enqueued,
    drain,
    drain_sync,
)
from holdfast.worker.processes import COLD_START

pytestmark = pytest.mark.anyio

InMemory = Callable[[Holdfast], Holdfast]


@pytest.fixture
def app(holdfast_memory: InMemory) -> Holdfast:
    """A small app of every kind of end, in memory."""
    app = Holdfast("sqlite:///never-opened.db")

    @app.task(retry=Retry(3, base="10s", jitter="none"))
    async def flaky(fails: int) -> int:
        attempt = current_job().attempt
        if attempt <= fails:
            raise ConnectionError(f"attempt {attempt}")
        return attempt

    @app.task
    async def doomed(why: str) -> None:
        raise Fatal(why, code="NO_WAY")

    @app.task
    def add(a: int, b: int = 1) -> int:
        return a + b

    return holdfast_memory(app)


# -- the clock ----------------------------------------------------------------------------------------------------------
async def test_a_manual_clock_moves_only_when_told_and_wakes_its_sleepers_in_order() -> None:  # E48
    clock = ManualClock()
    woken: list[str] = []

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    sleepers = [asyncio.create_task(sleep(*each)) for each in (("long", 60), ("short", 1), ("longest", 61))]
    await asyncio.sleep(0.01)
    assert woken == []
    began, ticks = clock.now(), clock.monotonic()

    assert clock.advance("1m") == began + timedelta(minutes=1)
    await asyncio.gather(*sleepers[:2])

    assert woken == ["short", "long"]
    assert clock.monotonic() - ticks == 60
    sleepers[2].cancel()
    await asyncio.gather(*sleepers, return_exceptions=True)
    clock.advance("1h")  # a sleeper that went away is nobody's trouble
    await asyncio.sleep(0)


def test_a_manual_clock_starts_where_it_is_told_in_utc_and_never_goes_back() -> None:
    start = datetime(2030, 5, 1, 12, tzinfo=UTC)
    assert ManualClock(start).now() == start
    with pytest.raises(UsageError, match="time zone"):
        ManualClock(datetime(2030, 5, 1))  # noqa: DTZ001 - the point
    with pytest.raises(UsageError):
        ManualClock(start).advance(-1)


def test_the_clock_may_be_moved_after_the_loop_of_a_sleeper_was_closed() -> None:
    clock = ManualClock()

    async def leave_a_sleeper() -> None:
        sleeper = asyncio.create_task(clock.sleep(5))
        await asyncio.sleep(0)
        sleeper.cancel()

    asyncio.run(leave_a_sleeper())
    clock.advance("10s")


# -- draining -----------------------------------------------------------------------------------------------------------
async def test_drain_runs_what_is_due_and_leaves_what_is_not(app: Holdfast) -> None:  # E48
    await app.tasks["add"].enqueue(2)
    await app.tasks["add"].options(delay="1h").enqueue(3)

    done = await drain(app)

    assert (done.attempts, done.completed) == (1, 1)
    assert_completed(app, "add", (2,), result=3)
    assert_enqueued(app, "add", (3,), state="queued")


async def test_drain_with_advance_jumps_over_every_wait(
    app: Holdfast, holdfast_clock: ManualClock
) -> None:  # E48, E10
    began = holdfast_clock.now()
    await app.tasks["flaky"].enqueue(2)

    done = await drain(app, advance=True)

    assert (done.attempts, done.retried, done.completed, done.failed) == (3, 2, 1, 0)
    assert [str(error) for error in done.errors] == ["attempt 1", "attempt 2"]
    assert holdfast_clock.now() == began + timedelta(seconds=30)  # 10 s, then 20 s
    [row] = assert_completed(app, "flaky", result=3)
    assert row.attempt == 3


async def test_a_job_that_fails_too_often_ends_as_a_dead_letter(app: Holdfast) -> None:
    await app.tasks["flaky"].enqueue(9)
    await app.tasks["doomed"].enqueue("it is late")

    done = await drain(app, advance=True)

    assert (done.attempts, done.retried, done.failed) == (4, 2, 2)
    [letter] = assert_dead(app, "doomed", {"why": "it is late"}, code="NO_WAY")
    assert letter.message == "it is late"
    assert_dead(app, "flaky", code="NETWORK", count=1)


async def test_jobs_that_enqueue_jobs_are_drained_too_in_whatever_queue(holdfast_memory: InMemory) -> None:
    app = holdfast_memory(Holdfast())
    order: list[int] = []

    @app.task
    async def countdown(left: int) -> None:
        order.append(left)
        if left:
            await countdown.options(queue=f"queue-{left}").enqueue(left - 1)

    await countdown.enqueue(3)
    assert (await drain(app)).completed == 4
    assert order == [3, 2, 1, 0]


async def test_drain_runs_one_job_at_a_time_in_order_unless_told_otherwise(holdfast_memory: InMemory) -> None:
    app = holdfast_memory(Holdfast())
    running, most, order = 0, 0, []

    @app.task
    async def work(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        order.append(number)
        await asyncio.sleep(0)
        running -= 1

    await work.enqueue_many(range(20))
    await drain(app)
    assert (most, order) == (1, list(range(20)))

    await work.enqueue_many(range(20))
    assert (await drain(app, concurrency=5)).completed == 20
    assert most == 5


async def test_a_drain_that_would_never_end_is_stopped_by_its_limit(holdfast_memory: InMemory) -> None:
    app = holdfast_memory(Holdfast())

    @app.task
    async def again() -> None:
        await again.options(delay="1m").enqueue()

    await again.enqueue()
    with pytest.raises(UsageError, match="20 attempts"):
        await drain(app, advance=True, limit=20)
    assert_completed(app, again, count=20)


async def test_exactly_as_many_attempts_as_the_limit_are_fine(app: Holdfast) -> None:
    await app.tasks["add"].enqueue_many([1, 2, 3])
    assert (await drain(app, limit=3)).completed == 3


async def test_a_snooze_is_not_an_attempt_and_the_clock_may_move_inside_a_handler(
    holdfast_memory: InMemory, holdfast_clock: ManualClock
) -> None:
    app = holdfast_memory(Holdfast())
    calls = 0

    @app.task(retry=1)
    async def patient(*, job: Job = THIS_JOB) -> int:
        nonlocal calls
        calls += 1
        holdfast_clock.advance("10m")  # far beyond the lease: a live worker keeps it
        if calls < 3:
            raise Snooze("1h")
        return job.attempt

    await patient.enqueue()
    done = await drain(app, advance=True)
    assert (done.attempts, done.snoozed, done.completed) == (3, 2, 1)
    assert_completed(app, patient, result=1)


async def test_deadlines_are_kept_while_the_clock_jumps(app: Holdfast) -> None:
    await app.tasks["flaky"].options(deadline="15s").enqueue(2)
    done = await drain(app, advance=True)
    assert (done.attempts, done.failed) == (2, 1)  # the second retry could not start in time
    assert_dead(app, "flaky", code="TIMEOUT")


async def test_a_job_whose_deadline_passed_before_it_ran_is_timed_out(
    app: Holdfast, holdfast_clock: ManualClock
) -> None:
    await app.tasks["add"].options(deadline="1m").enqueue(1)
    holdfast_clock.advance("2m")
    done = await drain(app)
    assert (done.attempts, done.timed_out) == (0, 1)
    assert_dead(app, "add", code="TIMEOUT")


async def test_the_leases_of_a_lost_worker_are_reclaimed(app: Holdfast, holdfast_clock: ManualClock) -> None:
    handle = await app.tasks["add"].enqueue(1)
    store = (await app.runtime.engine()).store
    session = await store.open_session("lost", timedelta(seconds=90))
    await store.claim(session, [app.tasks["add"].lane], 1)
    assert (await drain(app)).attempts == 0  # somebody else is at it

    holdfast_clock.advance("2m")
    done = await drain(app)
    assert (done.reclaimed, done.completed) == (1, 1)
    assert (await handle.job()).attempt == 2


async def test_lifespan_middleware_and_hooks_are_the_apps_own(holdfast_memory: InMemory) -> None:
    app = Holdfast()
    told: list[str] = []

    @app.lifespan
    async def resources() -> AsyncIterator[dict[str, int]]:
        told.append("open")
        yield {"answer": 42}
        told.append("close")

    @app.middleware
    async def around(job: Job, call: Callable[[], Any]) -> Any:
        told.append(f"before {job.task}")
        return await call()

    @app.on("complete")
    async def hook(transaction: Any, moves: Any) -> None:
        told.append(f"complete ×{len(moves)}")

    @app.task
    async def ask(*, job: Job = THIS_JOB) -> int:
        return int(job.resources["answer"])

    holdfast_memory(app)
    await ask.enqueue()
    await drain(app)
    assert told == ["open", "before ask", "complete ×1", "close"]
    assert_completed(app, ask, result=42)


async def test_quotas_and_limits_hold_in_a_drain_as_in_a_worker(tmp_path: Path) -> None:  # E18 E48
    file = tmp_path / "policies.toml"
    file.write_text("[quotas.default]\nper_day = 2")
    async with Holdfast("memory://", clock=ManualClock(), policies=file) as app:

        @app.task
        async def send() -> None: ...

        for _ in range(3):
            await send.options(owner="ann").enqueue()
        assert (await drain(app)).completed == 2
        assert (await app.jobs.counts())["queued"] == 1


async def test_a_job_may_wait_for_another_when_there_is_room_for_both(holdfast_memory: InMemory) -> None:
    app = holdfast_memory(Holdfast())

    @app.task
    def child(n: int) -> int:
        return n + 1

    @app.task
    async def parent(n: int) -> int:
        return int(await (await child.enqueue(n)).result(timeout="10s")) * 10

    await parent.enqueue(1)
    assert (await drain(app, concurrency=2)).completed == 2
    assert_completed(app, parent, result=20)


async def test_jobs_that_wait_for_each_other_end_a_drain_with_the_way_out(holdfast_memory: InMemory) -> None:
    app = holdfast_memory(Holdfast())

    @app.task
    async def child(n: int) -> int:
        return n + 1

    @app.task
    async def parent(n: int) -> int:
        return int(await (await child.enqueue(n)).result(timeout="1h")) * 10

    for n in range(3):
        await parent.enqueue(n)
    async with asyncio.timeout(20):
        with pytest.raises(UsageError, match=r"drain runs 2 at a time, .* drain\(app, concurrency=3\)"):
            await drain(app, concurrency=2)
    assert_completed(app, parent, count=0)
    await drain(app, concurrency=4)
    assert_completed(app, parent, count=3)


async def test_the_timeout_of_a_wait_ends_it_on_a_clock_that_nobody_moves(holdfast_memory: InMemory) -> None:
    app = holdfast_memory(Holdfast())

    @app.task(queue="elsewhere")
    async def child() -> None: ...

    @app.task(retry=Retry(2, base="1m"))
    async def parent() -> None:
        await (await child.enqueue()).result(timeout="30ms")

    async with asyncio.timeout(20):
        with pytest.raises(TimeoutError, match="is still queued after 30ms"):
            await (await child.enqueue()).result(timeout="30ms")
        await parent.enqueue()
        done = await drain(app, queues=["default"], advance=True)
    assert (done.attempts, done.retried, done.failed) == (2, 1, 1)
    assert [type(error) for error in done.errors] == [TimeoutError, TimeoutError]


async def test_a_wait_ends_when_the_clock_is_moved_by_hand(
    holdfast_memory: InMemory, holdfast_clock: ManualClock
) -> None:
    app = holdfast_memory(Holdfast())
    handle = await app.task(name="child")(_nothing).enqueue()
    waiting = asyncio.create_task(handle.result(timeout="1h"))
    await asyncio.sleep(0)
    holdfast_clock.advance("1h")
    async with asyncio.timeout(20):
        with pytest.raises(TimeoutError, match="is still queued after 1h"):
            await waiting


@pytest.mark.parametrize("advance", [False, True])
async def test_a_child_process_that_is_slow_to_import_is_waited_for(
    holdfast_memory: InMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, advance: bool
) -> None:  # E41 E48
    (tmp_path / "slow_to_import.py").write_text(
        "import multiprocessing, time\n"
        "if multiprocessing.parent_process() is not None:\n"
        f"    time.sleep({COLD_START + 0.5})\n"
        "def double(n: int) -> int:\n"
        "    return 2 * n\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    app = holdfast_memory(Holdfast())
    double = app.task(timeout="10s")(importlib.import_module("slow_to_import").double)
    assert double.policy.execute == "process"
    await double.enqueue(21)
    async with asyncio.timeout(60):
        done = await drain(app, advance=advance)
    assert (done.attempts, done.completed, done.released) == (1, 1, 0)
    assert_completed(app, double, result=42)


async def _nothing() -> None: ...


async def test_ends_that_are_not_settlements_are_seen_too(holdfast_memory: InMemory) -> None:
    app = holdfast_memory(Holdfast())

    @app.task
    async def booked() -> None:
        async with current_job().transaction(result="booked"):
            pass

    @app.task
    async def regretted() -> str:
        await app.jobs.cancel(current_job().id, by="itself")
        return "too late"

    await booked.enqueue()
    handle = await regretted.enqueue()
    done = await drain(app)
    assert (done.attempts, done.completed, done.late) == (2, 1, 1)
    assert_completed(app, booked, result="booked")
    assert (await handle.job()).state == "cancelled"


async def test_jobs_of_other_apps_stay_where_they_are(app: Holdfast, holdfast_clock: ManualClock) -> None:
    stranger = Holdfast(store=(await app.runtime.engine()).store, clock=holdfast_clock)

    @stranger.task
    async def unknown_here() -> None: ...

    await unknown_here.enqueue()
    await unknown_here.options(delay="1h").enqueue()
    assert (await drain(app, advance=True)).attempts == 0
    assert_enqueued(stranger, unknown_here, state="queued", count=2)


async def test_drain_runs_on_a_database_too(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/t.db")

    @app.task
    def double(n: int) -> int:
        return 2 * n

    async with app:
        await double.enqueue_many(range(10))
        with pytest.raises(UsageError, match="ManualClock"):
            await drain(app, advance=True)
        assert (await drain(app)).completed == 10
        assert_completed(app, double, (4,), result=8, count=1)


def test_a_test_without_an_event_loop_enqueues_drains_and_asserts(app: Holdfast) -> None:  # E48
    app.tasks["add"].enqueue_sync(5, b=6)
    assert drain_sync(app).completed == 1
    assert_completed(app, "add", {"a": 5}, result=11)
    app.tasks["add"].enqueue_sync(7)
    assert drain_sync(app).completed == 1
    assert app.sync.jobs.counts()["complete"] == 2


# -- in memory ----------------------------------------------------------------------------------------------------------
async def test_an_app_in_memory_leaves_its_own_database_alone_and_gets_it_back(tmp_path: Path) -> None:  # E48
    file = tmp_path / "own.db"
    app = Holdfast(f"sqlite:///{file}")

    @app.task
    async def note(text: str) -> str:
        return text

    async with app:
        await note.enqueue("before")
        with app_in_memory(app) as same:
            assert same is app
            assert (await app.jobs.counts())["queued"] == 0
            await note.enqueue("inside")
            await drain(app)
            assert_completed(app, note, count=1)
        assert (await app.jobs.counts())["complete"] == 0
        assert_enqueued(app, note, ("before",), count=1)

    other = tmp_path / "other.db"
    untouched = Holdfast(f"sqlite:///{other}")
    with app_in_memory(untouched):
        assert (await untouched.jobs.counts())["queued"] == 0
    assert not other.exists()


async def test_an_app_is_given_back_when_its_test_fails() -> None:
    app = Holdfast("sqlite:///own.db")
    with pytest.raises(ZeroDivisionError):
        with app_in_memory(app):
            raise ZeroDivisionError
    assert app.runtime.url == "sqlite:///own.db"


# -- assertions ---------------------------------------------------------------------------------------------------------
async def test_a_failed_assertion_shows_the_jobs_there_are(app: Holdfast) -> None:  # E48
    await app.tasks["add"].enqueue(1, b=2)
    await app.tasks["doomed"].enqueue("x")
    await app.tasks["flaky"].enqueue(1)
    await drain(app)

    with pytest.raises(AssertionError, match=r"expected at least one job: add\(a=9\) enqueued; found 0"):
        assert_enqueued(app, "add", {"a": 9})
    with pytest.raises(AssertionError, match=r"complete add\(a=1, b=2\) → 3 \(attempt 1 of 5\)"):
        assert_completed(app, "add", result=4)
    with pytest.raises(AssertionError, match=r"(?s)expected 2 jobs: doomed\(…\) dead.*found 1.*NO_WAY: x"):
        assert_dead(app, "doomed", count=2)
    with pytest.raises(AssertionError, match=r"queued flaky\(fails=1\).*after NETWORK, due 00:00:10"):
        assert_completed(app, "flaky")
    with pytest.raises(AssertionError, match="expected 0 jobs: doomed"):
        assert_enqueued(app, "doomed", count=0)


async def test_assertions_look_by_owner_queue_and_tag_and_can_count_none(app: Holdfast) -> None:
    await app.tasks["add"].options(owner="ada", queue="fast", tags=["blue"]).enqueue(1)
    assert_enqueued(app, "add", owner="ada", queue="fast", tag="blue", count=1)
    assert_enqueued(app, "add", owner="bob", count=0)
    assert_completed(app, "add", count=0)
    assert_dead(app, "add", count=0)


async def test_arguments_are_compared_as_they_are_stored(holdfast_memory: InMemory) -> None:
    app = holdfast_memory(Holdfast())

    @app.task
    async def remind(at: datetime, people: tuple[str, ...]) -> None: ...

    at = datetime(2030, 1, 1, tzinfo=UTC)
    await remind.enqueue(at, ("ada", "bob"))
    assert_enqueued(app, remind, (at, ("ada", "bob")), count=1)
    assert_enqueued(app, remind, {"people": ["ada", "bob"]}, count=1)


def test_a_wrong_name_in_an_assertion_is_not_taken_for_a_missing_job(app: Holdfast) -> None:
    with pytest.raises(UnknownTask, match="ad"):
        assert_enqueued(app, "ad", count=0)
    with pytest.raises(UsageError, match="no argument c"):
        assert_enqueued(app, "add", {"c": 1}, count=0)


# -- the plug-in --------------------------------------------------------------------------------------------------------
def test_every_public_name_is_there() -> None:
    for name in holdfast.testing.__all__:
        assert getattr(holdfast.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="nonsense"):
        holdfast.testing.nonsense  # noqa: B018


def test_the_plug_in_itself_imports_nothing_but_pytest() -> None:  # E48
    """Its package is another matter: measured here is what the plug-in adds to `import holdfast`."""
    script = (
        "import sys, pytest, holdfast; before = set(sys.modules); import holdfast.testing.plugin;"
        "print(*sorted(set(sys.modules) - before))"
    )
    added = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert set(added.split()) <= {"holdfast.testing", "holdfast.testing.plugin"}


async def test_secrets_of_a_database_outlive_a_test_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_SECRET", raising=False)
    url = f"sqlite:///{tmp_path}/hooks.db"
    async with Holdfast(url) as earlier:
        webhook = await earlier.webhooks.create_inbound()
    app = Holdfast(url)
    with app_in_memory(app):
        await app.webhooks.create_inbound()
    async with app:
        rotated = await app.webhooks.rotate_secret(webhook.id)
    assert rotated.secrets[1:] == webhook.secrets  # derived from the key of the database, not of the memory
