"""Results that are too large for a row: kept outside, read through, and what happens when that fails."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from devservices.s3 import S3
from holdfast import THIS_JOB, Holdfast, Job, ResultExpired, State, UsageError
from holdfast.testing import app_in_memory, drain
from tests.apps import SOON, Database, kinds, new_app, work
from tests.integration.artifacts.places import LARGE, Spoilt, files, spoil

pytestmark = pytest.mark.anyio


async def test_a_result_over_the_limit_is_kept_outside_and_read_through(
    app: Holdfast, kept: Path
) -> None:  # E42
    @app.task
    async def make(n: int) -> dict[str, Any] | int:
        return LARGE if n else n

    async with app:
        small, large = await make.enqueue_many([0, 1])
        await work(app)
        row = await app.jobs.get(large.id)
        assert (row.state, row.result, row.artifact) == (
            State.COMPLETE,
            None,
            f"{large.id}/{row.epoch}.json",
        )
        assert await large.result("30s") == await app.jobs.result(large.id) == LARGE
        assert await small.result("30s") == 0
        assert (await app.jobs.get(small.id)).artifact is None
        assert row.artifact is not None
        assert b'"pages"' in await app.jobs.read_artifact(row.artifact)
        [artifact] = await app.jobs.artifacts(large.id)
        assert (artifact.reference, artifact.name, artifact.bytes) == (
            row.artifact,
            None,
            (kept / row.artifact).stat().st_size,
        )
        assert await kinds(app, large.id) == ["queued", "processing", "complete"]
    assert files(kept) == [row.artifact]


async def test_sync_code_reads_it_through_too(app: Holdfast) -> None:  # E42
    @app.task
    def make() -> str:
        return "x" * 5000

    async with app:
        handle = await make.enqueue()
        await work(app)
        assert await asyncio.to_thread(lambda: app.sync.jobs.result(handle.id)) == "x" * 5000
        row = await app.jobs.get(handle.id)
        assert (
            await asyncio.to_thread(lambda: app.sync.jobs.read_artifact(str(row.artifact)))
            == b'"' + b"x" * 5000 + b'"'
        )
    app.runtime.portal.close()


async def test_a_result_that_looks_like_a_reference_is_a_result(app: Holdfast) -> None:  # E42
    looks = ["@0190a0b0-1111-7abc-8def-0123456789ab/1.json", {"artifact": "@x"}, "@"]

    @app.task
    async def make(n: int) -> Any:
        return looks[n]

    async with app:
        handles = await make.enqueue_many([0, 1, 2])
        await work(app)
        assert [await handle.result("30s") for handle in handles] == looks
        assert [(await app.jobs.get(handle.id)).artifact for handle in handles] == [None] * 3


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
        assert await handle.result("30s") == LARGE
    assert db.notes == ["together"]


# -- when it cannot be written --------------------------------------------------------------------------------------------
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
        assert await handle.result("30s") == LARGE
        first, second = await app.jobs.attempts(handle.id)
        row = await app.jobs.get(handle.id)
    assert (first.outcome, second.outcome) == ("retry", "complete")
    assert first.failure is not None
    assert first.failure.code == "IO_ERROR"
    assert files(kept) == [row.artifact]
    assert row.artifact == f"{handle.id}/{second.epoch}.json"


async def test_a_full_disk_ends_in_a_dead_letter_that_says_so(app: Holdfast) -> None:  # E13 E42
    @app.task(retry=SOON)
    async def make() -> Any:
        return LARGE

    async with app:
        await spoil(app, OSError(errno.ENOSPC, "No space left on device"))
        handle = await make.enqueue()
        await work(app)
        row = await app.jobs.get(handle.id)
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
        keeper = (await app.runtime.engine()).artifact_store
        assert keeper.artifacts is not None
        keeper.artifacts = Hanging(keeper.artifacts)
        handle = await make.enqueue()
        await work(app)
        assert (await app.jobs.get(handle.id)).error_code == "EXECUTION_TIMEOUT"


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
        slow = asyncio.create_task(app.run_worker(maintenance=False))
        await asyncio.wait_for(began.wait(), 20)
        engine = await app.runtime.engine()
        table = "holdfast.session" if db.is_postgres else "holdfast_session"
        column, value = ("expires_at", "'2000-01-01'") if db.is_postgres else ("expires_mono", "0")
        db.execute(f"UPDATE {table} SET {column} = {value}")
        await engine.recovery.reclaim()  # or the worker has done it itself
        other = new_app(db.url, result_limit=1000, artifacts=kept)
        other.tasks.update(app.tasks)
        async with other:
            await work(other)
        assert await handle.result("30s") == "new" * 1000
        row = await app.jobs.get(handle.id)
        go_on.set()
        await asyncio.wait_for(ended.wait(), 20)
        slow.cancel()  # in order: it settles what it has
        await asyncio.gather(slow, return_exceptions=True)
        assert await handle.result("30s") == "new" * 1000
        assert await app.jobs.get(handle.id) == row
    assert files(kept) == [row.artifact]


# -- when it cannot be read -----------------------------------------------------------------------------------------------
async def test_an_artifact_that_is_gone_has_expired(app: Holdfast, kept: Path) -> None:  # E38 E42
    @app.task
    async def make() -> Any:
        return LARGE

    async with app:
        handle = await make.enqueue()
        await work(app)
        reference = (await app.jobs.get(handle.id)).artifact
        assert reference is not None
        (kept / reference).unlink()
        for read in (handle.result("30s"), app.jobs.read_artifact(reference)):
            with pytest.raises(ResultExpired) as gone:
                await read
            assert gone.value.code == "EXPIRED"
            assert str(gone.value).startswith(f"EXPIRED: the artifact {reference} is gone")
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
            UsageError, match="this process has no artifacts= setting; set HOLDFAST_ARTIFACTS"
        ):
            await reader.jobs.result(handle.id)


@pytest.mark.parametrize(
    "reference", ["", "../../etc/passwd", "/etc/passwd", "@x", f"{'0' * 36}/1/../../x", f"{'0' * 36}/1/.x"]
)
async def test_what_is_no_reference_is_refused(reference: str, tmp_path: Path) -> None:  # E42
    async with Holdfast("memory://", artifacts=tmp_path) as app:
        with pytest.raises(UsageError, match="is not a reference to an artifact"):
            await app.jobs.read_artifact(reference)


# -- S3 -------------------------------------------------------------------------------------------------------------------
async def test_the_same_in_a_bucket(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:  # E38 E42
    with S3() as s3:
        s3.create_bucket("results")
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HOLDFAST_ARTIFACTS", "s3://results/prod")
        app = new_app(db.url, result_limit=1000)

        @app.task
        async def make(*, job: Job = THIS_JOB) -> Any:
            await job.artifact("page.png", b"\x89PNG")
            return LARGE

        async with app:
            handle = await make.enqueue()
            await work(app)
            row = await app.jobs.get(handle.id)
            assert await handle.result("30s") == LARGE
            assert s3.keys("results") == [f"prod/{row.artifact}", f"prod/{handle.id}/{row.epoch}/page.png"]
            assert await app.operations.purge(results=0) == 1
            assert s3.keys("results") == []
            with pytest.raises(ResultExpired):
                await handle.result("30s")


# -- the testing kit --------------------------------------------------------------------------------------------------------
async def test_an_app_in_memory_keeps_its_artifacts_there_too(tmp_path: Path) -> None:  # E42 E48
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db", artifacts="s3://production/results", result_limit=100)

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
        first, second = await app.jobs.attempts(handle.id)
        assert (first.logs[0].endswith("INFO attempt n=1"), second.logs) == (True, ())
        assert await app.operations.purge(results=0) == 1
        with pytest.raises(ResultExpired):
            await handle.result()
    assert list(tmp_path.iterdir()) == []
