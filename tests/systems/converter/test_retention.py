"""Retention of files (C9), and the sessions' key: on a real store, in this process."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from uuid_utils import uuid7

from holdfast import JobRow, UsageError
from systems.converter.retention import sweep
from systems.converter.settings import Settings
from systems.converter.tasks import Converter, build
from systems.converter.web.sessions import Sessions, read_key
from systems.converter.web.views import show
from tests.conftest import DATABASES

DAY = 86_400.0


@pytest.fixture(params=DATABASES)
async def converter(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Converter]:
    settings = Settings(
        database_url=request.getfixturevalue(f"{request.param}_url"),
        uploads_dir=tmp_path / "uploads",
        results_dir=tmp_path / "results",
        source_retention_sec=int(DAY),
    )
    made = build(settings)
    settings.uploads_dir.mkdir()
    settings.results_dir.mkdir()
    async with made.app:
        yield made


def put(path: Path, *, age: float = 0.0) -> Path:
    path.write_bytes(b"x")
    at = time.time() - age
    os.utime(path, (at, at))
    return path


async def a_job(converter: Converter, *, done: bool = False) -> JobRow:
    """A job that waits, or one that is complete because its result is there already."""
    job_id = str(uuid7())
    if done:
        put(converter.result(job_id))
    handle = await converter.convert.options(id=job_id, owner="ann").enqueue("text", name="a.pdf")
    if done:
        await converter.app.run_worker(until_idle=True, queues=["convert"])
    return await handle.job()


async def test_a_source_goes_when_it_is_old_and_its_job_has_ended(converter: Converter) -> None:  # C9
    done, waiting = await a_job(converter, done=True), await a_job(converter)
    sources = [put(converter.source(row.id), age=age) for row, age in ((done, 2 * DAY), (waiting, 2 * DAY))]
    young = await a_job(converter)
    await converter.app.jobs.cancel(young.id)
    kept = put(converter.source(young.id), age=DAY / 2)
    assert (await sweep(converter.app, converter.settings))["sources"] == 1
    assert [path.exists() for path in (*sources, kept)] == [False, True, True]


async def test_a_result_goes_when_it_has_expired_and_its_twin_is_made_anew(
    converter: Converter,
) -> None:  # C9
    row = await a_job(converter, done=True)
    os.utime(converter.result(row.id), (0, 0))  # its age alone says nothing
    assert (await sweep(converter.app, converter.settings))["results"] == 0
    await converter.app.operations.purge(results=0)
    assert (await sweep(converter.app, converter.settings))["results"] == 1
    assert not converter.result(row.id).exists()
    shown = show(await converter.app.jobs.get(row.id), converter)
    assert (shown["has_result"], shown["download"]) == (False, None)
    assert shown["message"] == "File was removed by retention. Re-upload to regenerate."


async def test_a_file_without_a_job_goes_when_no_upload_can_be_about_to_need_it(
    converter: Converter,
) -> None:  # C9
    old = put(converter.source(str(uuid7())), age=2 * 3600)
    new = put(converter.source(str(uuid7())), age=60)
    strange = put(converter.settings.uploads_dir / "thesis.pdf", age=90 * DAY)
    part = put(converter.settings.uploads_dir / f".{uuid7()}.pdf.upload.part", age=2 * 3600)
    assert await sweep(converter.app, converter.settings) == {"sources": 1, "results": 0, "parts": 1}
    assert [path.exists() for path in (old, new, strange, part)] == [False, True, True, False]


async def test_the_mark_of_a_removed_file_goes_with_its_job(converter: Converter) -> None:  # C9
    handle = await converter.convert.options(owner="ann").enqueue("text")
    kept = put(converter.removed(handle.id), age=90 * DAY)
    purged = put(converter.removed(str(uuid7())), age=90 * DAY)
    await sweep(converter.app, converter.settings)
    assert (kept.exists(), purged.exists()) == (True, False)


async def test_more_files_than_are_looked_up_at_a_time_are_all_judged(converter: Converter) -> None:  # C9
    handles = await converter.convert.options(owner="ann").enqueue_many([("text",)] * 250)
    for handle in handles:
        put(converter.source(handle.id), age=90 * DAY)
    strangers = [put(converter.source(str(uuid7())), age=90 * DAY) for _ in range(30)]
    assert (await sweep(converter.app, converter.settings))["sources"] == 30
    assert not any(path.exists() for path in strangers)
    assert all(converter.source(handle.id).exists() for handle in handles)  # they wait to be converted


async def test_the_sweep_is_a_job_by_the_clock(converter: Converter) -> None:  # C9
    assert list(converter.app.runtime.declared.schedules) == ["sweep_files"]
    old = put(converter.source(str(uuid7())), age=2 * 3600)
    handle = await converter.app.tasks["sweep_files"].enqueue()
    await converter.app.run_worker(until_idle=True)
    assert await handle.result() == {"sources": 1, "results": 0, "parts": 0}
    assert not old.exists()


def test_the_key_of_the_sessions_is_made_once_and_for_nobody_else_to_read(tmp_path: Path) -> None:
    file = tmp_path / "data" / "session.key"
    key = read_key(file)
    assert read_key(file) == key
    assert len(key) == 32
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["session.key"]
    file.write_bytes(b"")
    with pytest.raises(UsageError, match=r"^session\.key does not hold a key"):
        read_key(file)


def test_only_what_was_signed_with_this_key_is_a_session() -> None:
    ours, theirs = Sessions(b"a" * 32), Sessions(b"b" * 32)
    name = ours.new()
    cookie = ours.header(name, secure=True).partition("=")[2].partition(";")[0]
    assert ours.read(cookie) == (name, False)
    assert theirs.read(cookie) == (None, True)
    assert ours.read("") == ours.read(name) == ours.read("a.b.c") == (None, True)
    assert "; Secure" in ours.header(name, secure=True)
