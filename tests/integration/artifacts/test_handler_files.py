"""Files that handlers keep outside of the database, each attempt its own."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from holdfast import THIS_JOB, Fatal, Holdfast, Job, LeaseLost, State, UsageError, current_job
from tests.apps import SOON, Database, new_app, work
from tests.integration.artifacts.places import files

pytestmark = pytest.mark.anyio


async def test_a_handler_keeps_files_of_its_own(app: Holdfast, kept: Path) -> None:  # E42
    @app.task(retry=SOON)
    async def convert(*, job: Job = THIS_JOB) -> str:
        reference = await job.artifact("out.xml", f"<attempt>{job.attempt}</attempt>".encode())
        assert await job.artifact("out.xml", f"<attempt>{job.attempt}</attempt>".encode()) == reference
        if job.attempt == 1:
            raise OSError("not yet")
        return reference

    async with app:
        handle = await convert.enqueue()
        await work(app)
        reference = await handle.result("30s")
        assert await app.jobs.read_artifact(reference) == b"<attempt>2</attempt>"
        first, second = await app.jobs.artifacts(handle.id)
        assert await app.jobs.read_artifact(first.reference) == b"<attempt>1</attempt>"
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
    app = Holdfast("memory://", artifacts="memory://", poll="20ms")
    refused: list[str] = []

    @app.task
    async def convert(*, job: Job = THIS_JOB) -> None:
        try:
            await job.artifact(name, data)
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
        await job.artifact("out.xml", b"<a/>")

    async with app:
        handle = await convert.enqueue()
        await work(app)
        row = await app.jobs.get(handle.id)
        [attempt] = await app.jobs.attempts(handle.id)
    assert (row.state, row.error_code) == (State.FAILED, "BAD_CALL")
    assert attempt.failure is not None
    assert "HOLDFAST_ARTIFACTS" in attempt.failure.detail


async def test_a_handler_without_its_lease_keeps_nothing(
    app: Holdfast, db: Database, kept: Path
) -> None:  # E4 E42
    refused: list[BaseException] = []

    @app.task
    async def convert(*, job: Job = THIS_JOB) -> None:
        engine = await app.runtime.engine()
        db.execute(
            "UPDATE holdfast.session SET expires_at = '2000-01-01'"
            if db.is_postgres
            else "UPDATE holdfast_session SET expires_mono = 0"
        )
        await engine.recovery.reclaim()
        try:
            await job.artifact("out.xml", b"<a/>")
        except LeaseLost as error:
            refused.append(error)
            raise Fatal("it is not mine any more") from error

    async with app:
        handle = await convert.options(max_attempts=1).enqueue()
        await work(app, maintenance=False)
        assert (await app.jobs.get(handle.id)).error_code == "WORKER_LOST"
        assert await app.jobs.artifacts(handle.id) == []
    assert len(refused) == 1
    assert files(kept) == []


async def test_a_giant_file_is_written_without_a_copy_and_read_into_one(app: Holdfast) -> None:  # E42
    size, grown = 64 * 2**20, 0

    @app.task
    async def make() -> str:
        nonlocal grown
        data = bytes(size)
        tracemalloc.start()
        reference = await current_job().artifact("giant", data)
        grown = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return reference

    async with app:
        handle = await make.enqueue()
        await work(app)
        reference = await handle.result("30s")
        tracemalloc.start()
        assert len(await app.jobs.read_artifact(reference)) == size
        read = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert grown < size / 10
    assert read < size * 1.2
