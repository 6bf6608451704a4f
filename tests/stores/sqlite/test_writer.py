"""Group commit on SQLite: one transaction at a time, holding whatever was waiting when it began."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.errors import StoreError, StoreUnavailable
from holdfast.stores.sqlite.writer import MOST_PER_COMMIT, Writer
from holdfast.wiring import SystemThreads

Operation = Callable[[sqlite3.Connection], int]
SECONDS = 20.0  # how long anything here may take before the test is broken


class Connection(sqlite3.Connection):
    """Counts the commits, and can be made to fail them or to wait with them."""

    commits = 0
    broken: str | None = None
    before_commit: Callable[[], None] | None = None

    def execute(self, sql: str, parameters: object = (), /) -> sqlite3.Cursor:
        if sql == "COMMIT":
            if self.broken is not None:
                raise sqlite3.OperationalError(self.broken)
            if self.before_commit is not None:
                self.before_commit()
            self.commits += 1
        return super().execute(sql, parameters)  # type: ignore[arg-type]


class Desk:
    """A writer on a table of numbers, and a look at the table from outside of its transactions."""

    def __init__(self, path: Path, *, threads: bool = True, kind: type[Writer] = Writer) -> None:
        self.path = str(path)
        self.connection = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False, factory=Connection
        )
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("CREATE TABLE note (n INTEGER PRIMARY KEY)")
        self.connection.commits = 0
        self.writer = kind(self.connection, self.path, SystemThreads() if threads else None)
        self.held = threading.Event()
        self.go_on = threading.Event()

    def stored(self) -> list[int]:
        with sqlite3.connect(self.path) as look:
            rows = look.execute("SELECT n FROM note ORDER BY n").fetchall()
        look.close()
        return [n for (n,) in rows]

    def hold(self, n: int = 0) -> Operation:
        """An operation that stays in its transaction until told to go on."""

        def run(db: sqlite3.Connection) -> int:
            db.execute("INSERT INTO note VALUES (?)", (n,))
            self.held.set()
            assert self.go_on.wait(SECONDS)
            return n

        return run


def add(n: int) -> Operation:
    def run(db: sqlite3.Connection) -> int:
        db.execute("INSERT INTO note VALUES (?)", (n,))
        return n * 2

    return run


def add_and_raise(n: int, error: BaseException) -> Operation:
    def run(db: sqlite3.Connection) -> int:
        db.execute("INSERT INTO note VALUES (?)", (n,))
        raise error

    return run


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path / "notes.db")
    yield desk
    desk.go_on.set()
    desk.connection.broken = None
    desk.writer.close()


async def held(desk: Desk, *operations: Operation) -> list[asyncio.Task[int]]:
    """Start one operation that holds the writer, and let *operations* queue up behind it."""
    first = asyncio.ensure_future(desk.writer.run(desk.hold()))
    await asyncio.to_thread(desk.held.wait, SECONDS)
    tasks = [asyncio.ensure_future(desk.writer.run(operation)) for operation in operations]
    await asyncio.sleep(0)  # each has handed over before it waits
    assert len(desk.writer._waiting) == len(operations)
    return [first, *tasks]


async def test_what_arrives_during_a_commit_travels_together(desk: Desk) -> None:  # E46 E50
    tasks = await held(desk, *(add(n) for n in range(1, 11)))
    assert desk.stored() == []
    desk.go_on.set()
    assert await asyncio.gather(*tasks) == [0, *(n * 2 for n in range(1, 11))]
    assert desk.stored() == list(range(11))
    assert desk.connection.commits == 2


async def test_a_commit_holds_so_many_at_most(desk: Desk) -> None:
    tasks = await held(desk, *(add(n) for n in range(1, MOST_PER_COMMIT + 2)))
    desk.go_on.set()
    await asyncio.gather(*tasks)
    assert desk.connection.commits == 3


async def test_an_answer_comes_after_the_commit_that_contains_it(desk: Desk) -> None:  # E6
    """Whoever is answered can be seen from another connection."""

    async def check(n: int) -> bool:
        await desk.writer.run(add(n))
        return n in desk.stored()

    assert all(await asyncio.gather(*(check(n) for n in range(40))))


class SlowCommit:
    """A commit that begins when asked for, and ends when the test says so."""

    def __init__(self, desk: Desk) -> None:
        self._began, self._end = threading.Semaphore(0), threading.Semaphore(0)
        desk.connection.before_commit = self._wait

    def _wait(self) -> None:
        self._began.release()
        assert self._end.acquire(timeout=SECONDS)

    async def began(self) -> None:
        assert await asyncio.to_thread(self._began.acquire, timeout=SECONDS)
        for _ in range(5):  # whoever was answered before has heard of it now
            await asyncio.sleep(0)

    def end(self) -> None:
        self._end.release()


async def test_nobody_is_answered_while_the_commit_is_under_way(desk: Desk) -> None:  # E6
    answered = threading.Event()

    def call() -> None:
        desk.writer.run_sync(add(3))
        answered.set()

    first, *others = await held(desk, add(1), add(2))
    caller = threading.Thread(target=call)
    caller.start()
    async with asyncio.timeout(SECONDS):
        while len(desk.writer._waiting) < 3:  # noqa: ASYNC110 - it is another thread's doing
            await asyncio.sleep(0.001)
    commit = SlowCommit(desk)
    desk.go_on.set()
    await commit.began()
    assert not first.done()
    commit.end()
    await commit.began()
    assert not any(task.done() for task in others)
    assert not answered.is_set()
    commit.end()
    assert await asyncio.gather(first, *others) == [0, 2, 4]
    await asyncio.to_thread(caller.join, SECONDS)
    assert answered.is_set()


async def test_a_lone_caller_is_not_answered_while_its_commit_is_under_way(desk: Desk) -> None:  # E6
    commit = SlowCommit(desk)
    call = asyncio.ensure_future(asyncio.to_thread(desk.writer.run_sync, add(1)))
    await commit.began()
    assert not call.done()
    commit.end()
    assert await call == 2


async def test_an_operation_that_raises_undoes_only_its_own_writes(desk: Desk) -> None:
    tasks = await held(
        desk, add(1), add_and_raise(2, ValueError("no")), add(3), add(1), add_and_raise(5, KeyError("k"))
    )
    desk.go_on.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [answers[n] for n in (0, 1, 3)] == [0, 2, 6]
    assert isinstance(answers[2], ValueError)
    assert isinstance(answers[4], (sqlite3.IntegrityError, StoreError))  # 1 is there already
    assert isinstance(answers[5], KeyError)
    assert desk.stored() == [0, 1, 3]
    assert desk.connection.commits == 2


async def test_the_first_of_a_group_that_raises_undoes_only_its_own_writes(desk: Desk) -> None:
    tasks = await held(
        desk, add_and_raise(1, ValueError("no")), add(2), add_and_raise(3, KeyError("k")), add(4)
    )
    desk.go_on.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(answer) for answer in answers] == [int, ValueError, int, KeyError, int]
    assert desk.stored() == [0, 2, 4]


async def test_those_behind_a_sync_caller_are_seen_to_when_it_is_gone(desk: Desk) -> None:  # E50
    holding = threading.Thread(target=desk.writer.run_sync, args=(desk.hold(),))
    waiting = threading.Thread(target=desk.writer.run_sync, args=(add(1),))
    holding.start()
    assert await asyncio.to_thread(desk.held.wait, SECONDS)
    waiting.start()
    async with asyncio.timeout(SECONDS):
        while not desk.writer._waiting:  # noqa: ASYNC110 - it is another thread's doing
            await asyncio.sleep(0.001)
        behind = [asyncio.ensure_future(desk.writer.run(add(n))) for n in range(2, MOST_PER_COMMIT + 9)]
        await asyncio.sleep(0)
        desk.go_on.set()
        await asyncio.gather(*behind)
    holding.join(SECONDS)
    waiting.join(SECONDS)
    assert desk.stored() == list(range(MOST_PER_COMMIT + 9))


async def test_a_lone_operation_that_raises_leaves_nothing(desk: Desk) -> None:
    with pytest.raises(ValueError, match="no"):
        await desk.writer.run(add_and_raise(1, ValueError("no")))
    with pytest.raises(ValueError, match="no"):
        desk.writer.run_sync(add_and_raise(1, ValueError("no")))
    assert desk.stored() == []
    assert desk.writer.run_sync(add(1)) == 2  # and the writer lives
    assert await desk.writer.run(add(2)) == 4


@pytest.mark.parametrize("how", ["async", "sync"])
async def test_a_commit_that_fails_fails_all_and_stores_nothing(desk: Desk, how: str) -> None:  # E6
    desk.connection.broken = "disk I/O error"
    if how == "sync":
        with pytest.raises(StoreUnavailable, match="nothing was stored"):
            desk.writer.run_sync(add(1))
    else:
        tasks = await held(desk, add(1), add_and_raise(2, ValueError("own")), add(3))
        desk.go_on.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(answer, StoreUnavailable) for answer in answers)
    assert desk.stored() == []
    desk.connection.broken = None
    assert desk.writer.run_sync(add(1)) == 2
    assert desk.stored() == [1]


async def test_a_database_that_fails_takes_its_group_down_and_no_other(desk: Desk) -> None:
    tasks = await held(desk, add(1), add_and_raise(2, sqlite3.OperationalError("disk I/O error")))
    desk.go_on.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert answers[0] == 0  # committed before
    assert all(isinstance(answer, StoreUnavailable) for answer in answers[1:])
    assert desk.stored() == [0]
    assert await desk.writer.run(add(1)) == 2


async def test_a_cancelled_caller_loses_neither_its_write_nor_the_answers_of_others(desk: Desk) -> None:
    first, second, third = await held(desk, add(1), add(2))
    second.cancel()
    desk.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (await first, await third) == (0, 4)
    assert desk.stored() == [0, 1, 2]


async def test_callers_of_both_kinds_from_many_threads_get_their_own_answers(desk: Desk) -> None:  # E50
    each, threads = 25, 20
    wrong: list[object] = []
    begin = threading.Barrier(threads)

    def call(start: int) -> None:
        begin.wait(SECONDS)
        for n in range(start, start + each):
            if start % 2:
                answer = desk.writer.run_sync(add(n))
            else:
                answer = asyncio.run(desk.writer.run(add(n)))
            if answer != n * 2:
                wrong.append((n, answer))

    workers = [threading.Thread(target=call, args=(1001 * number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    here = await asyncio.gather(*(desk.writer.run(add(-n - 1)) for n in range(100)))
    for worker in workers:
        await asyncio.to_thread(worker.join, SECONDS)
        assert not worker.is_alive()
    assert wrong == []
    assert here == [(-n - 1) * 2 for n in range(100)]
    assert len(desk.stored()) == threads * each + 100
    assert desk.connection.commits <= threads * each + 100


class Interrupted(Writer):
    """Something happens when its thread is about to forget that it was told of work."""

    meanwhile: Callable[[], None] | None = None

    def __setattr__(self, name: str, value: object) -> None:
        if name == "_awake" and value is False and self.meanwhile:
            then, self.meanwhile = self.meanwhile, None
            then()
        super().__setattr__(name, value)


async def test_who_finds_the_writer_told_already_is_seen_to(tmp_path: Path) -> None:  # E50
    desk = Desk(tmp_path / "notes.db", kind=Interrupted)
    assert isinstance(desk.writer, Interrupted)
    loop, handed_over = asyncio.get_running_loop(), threading.Event()
    late: list[asyncio.Task[int]] = []

    def hand_over() -> None:
        late.append(loop.create_task(desk.writer.run(add(2))))
        loop.call_soon(handed_over.set)

    def meanwhile() -> None:
        loop.call_soon_threadsafe(hand_over)
        assert handed_over.wait(SECONDS)

    desk.writer.meanwhile = meanwhile
    async with asyncio.timeout(SECONDS):
        assert await desk.writer.run(add(1)) == 2
        assert await late[0] == 4
    desk.writer.close()


async def test_a_loop_that_is_gone_does_not_hinder_the_others(desk: Desk) -> None:
    desk_tasks = await held(desk, add(1))
    gone = asyncio.new_event_loop()
    caller = gone.create_task(desk.writer.run(add(2)))
    await asyncio.to_thread(gone.run_until_complete, _a_moment())
    caller.cancel()
    await asyncio.to_thread(gone.run_until_complete, _ended(caller))
    gone.close()
    desk.go_on.set()
    assert await asyncio.gather(*desk_tasks) == [0, 2]
    assert await desk.writer.run(add(3)) == 6
    assert desk.stored() == [0, 1, 2, 3]


async def _a_moment() -> None:
    await asyncio.sleep(0)


async def _ended(task: asyncio.Task[int]) -> None:
    await asyncio.wait([task])


async def test_close_commits_what_waits(tmp_path: Path) -> None:  # E31
    desk = Desk(tmp_path / "notes.db")
    tasks = await held(desk, *(add(n) for n in range(1, 101)))
    closing = asyncio.ensure_future(asyncio.to_thread(desk.writer.close))
    desk.go_on.set()
    await closing
    assert await asyncio.gather(*tasks) == [n * 2 for n in range(101)]
    assert desk.stored() == list(range(101))


@pytest.mark.parametrize("threads", [True, False])
async def test_a_closed_writer_says_so(tmp_path: Path, threads: bool) -> None:
    desk = Desk(tmp_path / "notes.db", threads=threads)
    desk.writer.close()
    with pytest.raises(StoreError, match="closed"):
        desk.writer.run_sync(add(1))
    with pytest.raises(StoreError, match="closed"):
        await desk.writer.run(add(1))


async def test_without_threads_everything_runs_inline(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "notes.db", threads=False)
    here: list[int] = []

    def where(db: sqlite3.Connection) -> int:
        here.append(threading.get_ident())
        return 1

    assert await desk.writer.run(where) == 1
    assert here == [threading.get_ident()]
    assert await asyncio.gather(*(desk.writer.run(add(n)) for n in range(3))) == [0, 2, 4]
    with pytest.raises(ValueError, match="no"):
        await desk.writer.run(add_and_raise(9, ValueError("no")))
    assert desk.stored() == [0, 1, 2]
    desk.writer.close()
