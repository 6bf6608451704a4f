"""What is kept outside of the database is removed in time, with its results and its jobs."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import THIS_JOB, Holdfast, Job, ResultExpired, Retention, State
from tests.apps import SOON, Database, new_app, work
from tests.integration.artifacts.places import LARGE, Spoilt, files, spoil

pytestmark = pytest.mark.anyio


@pytest.fixture
def made(app: Holdfast) -> Callable[[int], Any]:
    @app.task(retry=SOON)
    async def make(n: int, *, job: Job = THIS_JOB) -> Any:
        await job.artifact("draft.txt", b"draft")
        if job.attempt == 1:
            raise OSError("once more")
        return LARGE

    async def run(count: int) -> list[str]:
        handles = await make.enqueue_many(range(count))
        await work(app)
        return [handle.id for handle in handles]

    return run


async def test_retention_removes_the_artifacts_with_the_results(
    app: Holdfast, kept: Path, made: Any
) -> None:  # E38 E42
    async with app:
        ids = await made(3)
        assert len(files(kept)) == 9  # a result and a draft, and the draft of the attempt that failed
        assert await app.operations.purge(results="1h") == 0
        assert len(files(kept)) == 9
        assert await app.operations.purge(results=0) == 3
        assert files(kept) == []
        assert list(kept.iterdir()) == []
        row = await app.jobs.get(ids[0])
        assert (row.state, row.artifact, row.expired_at is not None) == (State.COMPLETE, None, True)
        assert await app.jobs.artifacts(ids[0]) == []
        with pytest.raises(
            ResultExpired, match=f"EXPIRED: the result of job {ids[0]} is gone: it was removed on 20"
        ):
            await app.jobs.result(ids[0])
        assert await app.operations.purge(results=0) == 0


async def test_a_result_in_the_row_expires_the_same_way(app: Holdfast) -> None:  # E38
    @app.task
    async def small() -> int:
        return 1

    async with app:
        handle = await small.enqueue()
        await work(app)
        await app.operations.purge(results=0)
        with pytest.raises(ResultExpired):
            await handle.result("30s")


async def test_a_purged_job_leaves_nothing_behind(
    app: Holdfast, db: Database, kept: Path, made: Any
) -> None:  # E38 E42
    async with app:
        await made(2)
        assert await app.operations.purge(jobs=0) == 2
    assert files(kept) == []
    assert (db.count("artifact"), db.count("attempt_log"), db.count("job")) == (0, 0, 0)


async def test_what_cannot_be_deleted_keeps_its_job_and_the_others_go(
    app: Holdfast, kept: Path, made: Any, caplog: pytest.LogCaptureFixture
) -> None:  # E38
    async with app:
        await made(3)
        await spoil(app, OSError(errno.EIO, "the bucket is away"))
        assert await app.operations.purge(jobs=0) == 3  # the one that failed was tried again
        assert "artifact.not_deleted" in caplog.text
        await made(3)
        await spoil(app, *(OSError(errno.EACCES, "not yours") for _ in range(100)))
        assert await app.operations.purge(jobs=0) == 0
        assert sum((await app.jobs.counts()).values()) == 3
        assert len(files(kept)) == 9
        keeper = (await app.runtime.engine()).artifact_store
        assert isinstance(keeper.artifacts, Spoilt)
        keeper.artifacts = keeper.artifacts.inner
        assert await app.operations.purge(jobs=0) == 3
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
        assert await other.operations.purge(jobs=0) == 1
        assert (await other.jobs.counts())["complete"] == 1
    assert "this process has no artifacts= setting" in caplog.text
    assert len(files(kept)) == 3


async def test_the_duty_of_retention_does_it_by_itself(
    db: Database, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # E38 E42
    app = new_app(db.url, result_limit=100, artifacts=kept, retention=Retention(results="1ms"))

    @app.task
    async def make() -> Any:
        return LARGE

    async with app:
        handle = await make.enqueue()
        await app.run_worker(until_idle=True, maintenance=False)
        assert len(files(kept)) == 1
        engine = await app.runtime.engine()
        expired, purge = asyncio.Event(), engine.store.purge

        async def watched(*given: Any) -> int:
            done = await purge(*given)
            if done:
                expired.set()
            return done

        monkeypatch.setattr(engine.store, "purge", watched)
        working = asyncio.create_task(app.run_worker())
        async with asyncio.timeout(20):
            await expired.wait()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        assert (await app.jobs.get(handle.id)).expired_at is not None
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
        keeper = (await app.runtime.engine()).artifact_store
        assert keeper.artifacts is not None
        keeper.artifacts = Slow(keeper.artifacts)
        assert await (await app.runtime.engine()).recovery.purge(Retention(jobs=0), patience=1.0) == 0
        assert len(files(kept)) == 4
    assert "it takes long; the rest follows" in caplog.text
