"""Results that are too large for a row, and files of handlers: kept outside, read through, removed in time."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import THIS_JOB, Fatal, Holdfast, Job, LeaseLost, ResultExpired, Retention, State, UsageError
from holdfast.engine.ports import Artefacts
from holdfast.testing import app_in_memory, drain
from tests.integration.world import SOON, Database, kinds, new_app, work

pytestmark = pytest.mark.anyio

LARGE = {"pages": ["é" * 100] * 30, "@": None}


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


@pytest.fixture
def app(db: Database, kept: Path) -> Holdfast:
    return new_app(db.url, result_limit=1000, artefacts=kept)


def files(kept: Path) -> list[str]:
    return sorted(path.relative_to(kept).as_posix() for path in kept.rglob("*") if path.is_file())


async def test_a_result_over_the_limit_is_kept_outside_and_read_through(
    app: Holdfast, kept: Path
) -> None:  # E42
    @app.task
    async def make(n: int) -> dict[str, Any] | int:
        return LARGE if n else n

    async with app:
        small, large = await make.enqueue_many([0, 1])
        await work(app)
        row = await app.job(large.id)
        assert (row.state, row.result, row.artefact) == (
            State.COMPLETE,
            None,
            f"{large.id}/{row.epoch}.json",
        )
        assert await large.result("1s") == await app.result(large.id) == LARGE
        assert await small.result("1s") == 0
        assert (await app.job(small.id)).artefact is None
        assert row.artefact is not None
        assert b'"pages"' in await app.artefact(row.artefact)
        [artefact] = await app.artefacts(large.id)
        assert (artefact.reference, artefact.name, artefact.bytes) == (
            row.artefact,
            None,
            (kept / row.artefact).stat().st_size,
        )
        assert await kinds(app, large.id) == ["queued", "processing", "complete"]
    assert files(kept) == [row.artefact]


async def test_sync_code_reads_it_through_too(app: Holdfast) -> None:  # E42
    @app.task
    def make() -> str:
        return "x" * 5000

    async with app:
        handle = await make.enqueue()
        await work(app)
        assert await asyncio.to_thread(lambda: app.sync.result(handle.id)) == "x" * 5000
        row = await app.job(handle.id)
        assert await asyncio.to_thread(lambda: app.sync.artefact(row.artefact)) == b'"' + b"x" * 5000 + b'"'
    app.portal.close()


async def test_a_result_that_looks_like_a_reference_is_a_result(app: Holdfast) -> None:  # E42
    looks = ["@0190a0b0-1111-7abc-8def-0123456789ab/1.json", {"artefact": "@x"}, "@"]

    @app.task
    async def make(n: int) -> Any:
        return looks[n]

    async with app:
        handles = await make.enqueue_many([0, 1, 2])
        await work(app)
        assert [await handle.result("1s") for handle in handles] == looks
        assert [(await app.job(handle.id)).artefact for handle in handles] == [None] * 3


async def test_a_large_result_commits_with_the_transaction_of_its_job(
    app: Holdfast, db: Database
) -> None:  # E42 E49
    @app.task
    async def make(*, job: Job = THIS_JOB) -> Any:
        async with job.transaction(LARGE) as connection:
            statement = connection.execute("INSERT INTO note VALUES ('together')")
            if asyncio.iscoroutine(statement):
                await statement

    async with app:
        handle = await make.enqueue()
        await work(app)
        assert await handle.result("1s") == LARGE
    assert db.notes == ["together"]


# -- when it cannot be written --------------------------------------------------------------------------------------------
class Spoilt:
    """A place that fails now and then."""

    def __init__(self, inner: Artefacts, *failures: BaseException | None) -> None:
        self.inner, self.failures = inner, list(failures)

    def _fail(self) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure

    async def put(self, name: str, data: bytes) -> str:
        self._fail()
        return await self.inner.put(name, data)

    async def get(self, reference: str) -> bytes:
        self._fail()
        return await self.inner.get(reference)

    async def delete(self, reference: str) -> None:
        self._fail()
        await self.inner.delete(reference)


async def spoil(app: Holdfast, *failures: BaseException | None) -> None:
    keeper = (await app.engine()).keeper
    assert keeper.artefacts is not None
    keeper.artefacts = Spoilt(keeper.artefacts, *failures)


async def test_a_write_that_fails_is_a_failed_attempt_and_tried_again(
    app: Holdfast, kept: Path
) -> None:  # E13 E42
    @app.task(retry=SOON)
    async def make() -> Any:
        return LARGE

    async with app:
        await spoil(app, OSError(errno.EIO, "s3://bucket is away"))
        handle = await make.enqueue()
        await work(app)
        assert await handle.result("1s") == LARGE
        first, second = await app.attempts(handle.id)
        row = await app.job(handle.id)
    assert (first.outcome, second.outcome) == ("retry", "complete")
    assert first.failure is not None
    assert first.failure.code == "IO_ERROR"
    assert files(kept) == [row.artefact]
    assert row.artefact == f"{handle.id}/{second.epoch}.json"


async def test_a_full_disk_ends_in_a_dead_letter_that_says_so(app: Holdfast) -> None:  # E13 E42
    @app.task(retry=SOON)
    async def make() -> Any:
        return LARGE

    async with app:
        await spoil(app, OSError(errno.ENOSPC, "No space left on device"))
        handle = await make.enqueue()
        await work(app)
        row = await app.job(handle.id)
    assert (row.state, row.error_code, row.attempt) == (State.FAILED, "DISK_FULL", 1)


async def test_a_write_that_hangs_is_stopped_by_the_timeout(app: Holdfast) -> None:  # E41 E42
    @app.task(timeout="200ms", retry=1)
    async def make() -> Any:
        return LARGE

    class Hanging(Spoilt):
        async def put(self, name: str, data: bytes) -> str:
            await asyncio.Event().wait()
            return name

    async with app:
        keeper = (await app.engine()).keeper
        assert keeper.artefacts is not None
        keeper.artefacts = Hanging(keeper.artefacts)
        handle = await make.enqueue()
        await work(app)
        assert (await app.job(handle.id)).error_code == "EXECUTION_TIMEOUT"


async def test_a_replaced_worker_writes_over_nothing(
    app: Holdfast, db: Database, kept: Path
) -> None:  # E4 E42
    """The first attempt hangs until another has completed the job; what it brings then is nobody's."""
    began, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    calls: list[int] = []

    @app.task(retry=SOON)
    async def make() -> str:
        calls.append(1)
        if len(calls) == 1:
            began.set()
            try:
                await go_on.wait()
                return "old" * 1000
            finally:
                ended.set()
        return "new" * 1000

    async with app:
        handle = await make.enqueue()
        slow = asyncio.create_task(app.run_worker(duties=False))
        await asyncio.wait_for(began.wait(), 10)
        engine = await app.engine()
        table = "holdfast.session" if db.is_postgres else "holdfast_session"
        column, value = ("expires_at", "'2000-01-01'") if db.is_postgres else ("expires_mono", "0")
        db.execute(f"UPDATE {table} SET {column} = {value}")
        await engine.reclaim()  # or the worker has done it itself
        other = new_app(db.url, result_limit=1000, artefacts=kept)
        other.tasks.update(app.tasks)
        async with other:
            await work(other)
        assert await handle.result("1s") == "new" * 1000
        row = await app.job(handle.id)
        go_on.set()
        await asyncio.wait_for(ended.wait(), 10)
        slow.cancel()  # in order: it settles what it has
        await asyncio.gather(slow, return_exceptions=True)
        assert await handle.result("1s") == "new" * 1000
        assert await app.job(handle.id) == row
    assert files(kept) == [row.artefact]


# -- when it cannot be read -----------------------------------------------------------------------------------------------
async def test_an_artefact_that_is_gone_has_expired(app: Holdfast, kept: Path) -> None:  # E38 E42
    @app.task
    async def make() -> Any:
        return LARGE

    async with app:
        handle = await make.enqueue()
        await work(app)
        reference = (await app.job(handle.id)).artefact
        assert reference is not None
        (kept / reference).unlink()
        for read in (handle.result("1s"), app.artefact(reference)):
            with pytest.raises(ResultExpired) as gone:
                await read
            assert gone.value.code == "EXPIRED"
            assert str(gone.value).startswith(f"EXPIRED: the artefact {reference} is gone")
            assert "\n" not in str(gone.value)


async def test_a_process_that_does_not_know_where_says_what_to_set(
    app: Holdfast, db: Database
) -> None:  # E14 E42
    @app.task
    async def make() -> Any:
        return LARGE

    async with app:
        handle = await make.enqueue()
        await work(app)
    async with new_app(db.url) as reader:
        with pytest.raises(
            UsageError, match="this process has no artefacts= setting; set HOLDFAST_ARTEFACTS"
        ):
            await reader.result(handle.id)


@pytest.mark.parametrize(
    "reference", ["", "../../etc/passwd", "/etc/passwd", "@x", f"{'0' * 36}/1/../../x", f"{'0' * 36}/1/.x"]
)
async def test_what_is_no_reference_is_refused(reference: str, tmp_path: Path) -> None:  # E42
    async with Holdfast("memory://", artefacts=tmp_path) as app:
        with pytest.raises(UsageError, match="is not a reference to an artefact"):
            await app.artefact(reference)


# -- files of handlers ------------------------------------------------------------------------------------------------------
async def test_a_handler_keeps_files_of_its_own(app: Holdfast, kept: Path) -> None:  # E42
    @app.task(retry=SOON)
    async def convert(*, job: Job = THIS_JOB) -> str:
        reference = await job.artefact("out.xml", f"<attempt>{job.attempt}</attempt>".encode())
        assert await job.artefact("out.xml", f"<attempt>{job.attempt}</attempt>".encode()) == reference
        if job.attempt == 1:
            raise OSError("not yet")
        return reference

    async with app:
        handle = await convert.enqueue()
        await work(app)
        reference = await handle.result("1s")
        assert await app.artefact(reference) == b"<attempt>2</attempt>"
        first, second = await app.artefacts(handle.id)
        assert await app.artefact(first.reference) == b"<attempt>1</attempt>"
        assert (first.name, second.reference) == ("out.xml", reference)
    assert len(files(kept)) == 2


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("../x", b"", "'../x' cannot name a file; use up to 200 letters"),
        (".hidden", b"", "'.hidden' cannot name a file"),
        ("", b"", "'' cannot name a file"),
        ("x" * 201, b"", "cannot name a file"),
        ("out.xml", "text", "out.xml holds a str; give bytes, e.g. text.encode()"),
    ],
)
async def test_a_file_that_cannot_be_kept_is_refused(name: str, data: Any, words: str) -> None:  # E42
    app = Holdfast("memory://", artefacts="memory://", poll="20ms")
    refused: list[str] = []

    @app.task
    async def convert(*, job: Job = THIS_JOB) -> None:
        try:
            await job.artefact(name, data)
        except UsageError as error:
            refused.append(str(error))

    async with app:
        await convert.enqueue()
        await work(app)
    assert words in refused[0]


async def test_without_a_place_for_it_a_file_is_refused(db: Database) -> None:  # E42
    app = new_app(db.url)

    @app.task(retry=SOON)
    async def convert(*, job: Job = THIS_JOB) -> None:
        await job.artefact("out.xml", b"<a/>")

    async with app:
        handle = await convert.enqueue()
        await work(app)
        row = await app.job(handle.id)
        [attempt] = await app.attempts(handle.id)
    assert (row.state, row.error_code) == (State.FAILED, "BAD_CALL")
    assert attempt.failure is not None
    assert "HOLDFAST_ARTEFACTS" in attempt.failure.detail


async def test_a_handler_without_its_lease_keeps_nothing(
    app: Holdfast, db: Database, kept: Path
) -> None:  # E4 E42
    refused: list[BaseException] = []

    @app.task
    async def convert(*, job: Job = THIS_JOB) -> None:
        engine = await app.engine()
        db.execute(
            "UPDATE holdfast.session SET expires_at = '2000-01-01'"
            if db.is_postgres
            else "UPDATE holdfast_session SET expires_mono = 0"
        )
        await engine.reclaim()
        try:
            await job.artefact("out.xml", b"<a/>")
        except LeaseLost as error:
            refused.append(error)
            raise Fatal("it is not mine any more") from error

    async with app:
        handle = await convert.options(max_attempts=1).enqueue()
        await work(app, duties=False)
        assert (await app.job(handle.id)).error_code == "WORKER_LOST"
        assert await app.artefacts(handle.id) == []
    assert len(refused) == 1
    assert files(kept) == []


# -- retention --------------------------------------------------------------------------------------------------------------
@pytest.fixture
def made(app: Holdfast) -> Callable[[int], Any]:
    @app.task(retry=SOON)
    async def make(n: int, *, job: Job = THIS_JOB) -> Any:
        await job.artefact("draft.txt", b"draft")
        if job.attempt == 1:
            raise OSError("once more")
        return LARGE

    async def run(count: int) -> list[str]:
        handles = await make.enqueue_many(range(count))
        await work(app)
        return [handle.id for handle in handles]

    return run


async def test_retention_removes_the_artefacts_with_the_results(
    app: Holdfast, kept: Path, made: Any
) -> None:  # E38 E42
    async with app:
        ids = await made(3)
        assert len(files(kept)) == 9  # a result and a draft, and the draft of the attempt that failed
        assert await app.purge(results="1h") == 0
        assert len(files(kept)) == 9
        assert await app.purge(results=0) == 3
        assert files(kept) == []
        assert list(kept.iterdir()) == []
        row = await app.job(ids[0])
        assert (row.state, row.artefact, row.expired_at is not None) == (State.COMPLETE, None, True)
        assert await app.artefacts(ids[0]) == []
        with pytest.raises(
            ResultExpired, match=f"EXPIRED: the result of job {ids[0]} is gone: it was removed on 20"
        ):
            await app.result(ids[0])
        assert await app.purge(results=0) == 0


async def test_a_result_in_the_row_expires_the_same_way(app: Holdfast) -> None:  # E38
    @app.task
    async def small() -> int:
        return 1

    async with app:
        handle = await small.enqueue()
        await work(app)
        await app.purge(results=0)
        with pytest.raises(ResultExpired):
            await handle.result("1s")


async def test_a_purged_job_leaves_nothing_behind(
    app: Holdfast, db: Database, kept: Path, made: Any
) -> None:  # E38 E42
    async with app:
        await made(2)
        assert await app.purge(jobs=0) == 2
    assert files(kept) == []
    assert (db.count("artefact"), db.count("attempt_log"), db.count("job")) == (0, 0, 0)


async def test_what_cannot_be_deleted_keeps_its_job_and_the_others_go(
    app: Holdfast, kept: Path, made: Any, caplog: pytest.LogCaptureFixture
) -> None:  # E38
    async with app:
        await made(3)
        await spoil(app, OSError(errno.EIO, "the bucket is away"))
        assert await app.purge(jobs=0) == 3  # the one that failed was tried again
        assert "artefacts.kept" in caplog.text
        await made(3)
        await spoil(app, *(OSError(errno.EACCES, "not yours") for _ in range(100)))
        assert await app.purge(jobs=0) == 0
        assert sum((await app.counts()).values()) == 3
        assert len(files(kept)) == 9
        keeper = (await app.engine()).keeper
        assert isinstance(keeper.artefacts, Spoilt)
        keeper.artefacts = keeper.artefacts.inner
        assert await app.purge(jobs=0) == 3
    assert files(kept) == []
    assert "not yours" in caplog.text


async def test_a_process_without_the_setting_purges_the_others(
    app: Holdfast, db: Database, kept: Path, made: Any, caplog: pytest.LogCaptureFixture
) -> None:  # E38
    async with app:
        await made(1)
    async with new_app(db.url) as other:

        @other.task
        async def small() -> None: ...

        await small.enqueue()
        await work(other)
        assert await other.purge(jobs=0) == 1
        assert (await other.counts())["complete"] == 1
    assert "this process has no artefacts= setting" in caplog.text
    assert len(files(kept)) == 3


async def test_the_duty_of_retention_does_it_by_itself(
    db: Database, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # E38 E42
    app = new_app(db.url, result_limit=100, artefacts=kept, retention=Retention(results="1ms"))  # type: ignore[arg-type]

    @app.task
    async def make() -> Any:
        return LARGE

    async with app:
        handle = await make.enqueue()
        await app.run_worker(until_idle=True, duties=False)
        assert len(files(kept)) == 1
        engine = await app.engine()
        expired, purge = asyncio.Event(), engine.store.purge

        async def watched(*given: Any) -> int:
            done = await purge(*given)
            if done:
                expired.set()
            return done

        monkeypatch.setattr(engine.store, "purge", watched)
        working = asyncio.create_task(app.run_worker())
        async with asyncio.timeout(10):
            await expired.wait()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        assert (await app.job(handle.id)).expired_at is not None
    assert files(kept) == []


async def test_deletes_that_take_long_do_not_keep_the_other_duties(
    app: Holdfast, kept: Path, made: Any, caplog: pytest.LogCaptureFixture
) -> None:  # E38
    class Slow(Spoilt):
        async def delete(self, reference: str) -> None:
            if len(self.failures) >= 2:
                await asyncio.Event().wait()
            self.failures.append(None)
            await self.inner.delete(reference)

    async with app:
        await made(2)
        keeper = (await app.engine()).keeper
        assert keeper.artefacts is not None
        keeper.artefacts = Slow(keeper.artefacts)
        assert await (await app.engine()).purge(Retention(jobs=0), patience=0.2) == 0  # type: ignore[arg-type]
        assert len(files(kept)) == 4
    assert "it takes long; the rest follows" in caplog.text


# -- S3 -------------------------------------------------------------------------------------------------------------------
async def test_the_same_in_a_bucket(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:  # E38 E42
    from tests.services.s3 import S3

    with S3() as s3:
        s3.create_bucket("results")
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HOLDFAST_ARTEFACTS", "s3://results/prod")
        app = new_app(db.url, result_limit=1000)

        @app.task
        async def make(*, job: Job = THIS_JOB) -> Any:
            await job.artefact("page.png", b"\x89PNG")
            return LARGE

        async with app:
            handle = await make.enqueue()
            await work(app)
            row = await app.job(handle.id)
            assert await handle.result("1s") == LARGE
            assert s3.keys("results") == [f"prod/{row.artefact}", f"prod/{handle.id}/{row.epoch}/page.png"]
            assert await app.purge(results=0) == 1
            assert s3.keys("results") == []
            with pytest.raises(ResultExpired):
                await handle.result("1s")


# -- the testing kit --------------------------------------------------------------------------------------------------------
async def test_an_app_in_memory_keeps_its_artefacts_there_too(tmp_path: Path) -> None:  # E42 E48
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db", artefacts="s3://production/results", result_limit=100)

    @app.task(retry=SOON)
    async def make(*, job: Job = THIS_JOB) -> Any:
        job.log("attempt", n=job.attempt)
        if job.attempt == 1:
            raise OSError("once")
        return LARGE

    with app_in_memory(app):
        handle = await make.enqueue()
        await drain(app, advance=True)
        assert await handle.result() == LARGE
        first, second = await app.attempts(handle.id)
        assert (first.logs[0].endswith("INFO attempt n=1"), second.logs) == (True, ())
        assert await app.purge(results=0) == 1
        with pytest.raises(ResultExpired):
            await handle.result()
    assert list(tmp_path.iterdir()) == []
