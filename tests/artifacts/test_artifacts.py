"""One contract for every place that artifacts are kept in, and what each has of its own."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devservices.s3 import S3
from holdfast.engine.ports import ArtifactBackend
from holdfast.errors import UsageError
from holdfast.jobs.codes import ErrorClass
from holdfast.resilience.classify import classify
from holdfast.wiring import make_artifacts

pytestmark = pytest.mark.anyio

NAME = "0190a0b0-1111-7abc-8def-0123456789ab/17.json"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    with S3() as server:
        server.create_bucket("bucket")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture(params=["memory", "files", "s3"])
def artifacts(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactBackend:
    if request.param == "s3":
        request.getfixturevalue("s3")
    places = {"memory": "memory://", "files": f"file://{tmp_path}/kept", "s3": "s3://bucket/some/prefix"}
    return make_artifacts(places[request.param])


# -- the contract -------------------------------------------------------------------------------------------------------
async def test_what_is_put_is_got_back_whole(artifacts: ArtifactBackend) -> None:  # E42
    for data in (b"", b"\0\xff\r\n", os.urandom(1000), b"x" * 12_000_000):
        reference = await artifacts.put(NAME, data)
        assert reference == NAME
        assert await artifacts.get(reference) == data


async def test_what_is_put_twice_is_there_once(artifacts: ArtifactBackend) -> None:  # E6 E42
    await artifacts.put(NAME, b"one")
    await artifacts.put(NAME, b"one")
    await artifacts.delete(NAME)
    with pytest.raises(FileNotFoundError):
        await artifacts.get(NAME)


async def test_what_is_not_there_is_a_file_not_found(artifacts: ArtifactBackend) -> None:  # E42
    with pytest.raises(FileNotFoundError) as missing:
        await artifacts.get(NAME)
    assert classify(missing.value).code == "NOT_FOUND"


async def test_a_delete_may_be_sent_again(artifacts: ArtifactBackend) -> None:  # E38
    await artifacts.delete(NAME)
    await artifacts.put(NAME, b"1")
    await artifacts.put(NAME.replace("17", "18"), b"2")
    await artifacts.delete(NAME)
    await artifacts.delete(NAME)
    assert await artifacts.get(NAME.replace("17", "18")) == b"2"


async def test_many_at_once_do_not_disturb_each_other(artifacts: ArtifactBackend) -> None:  # E42
    names = [f"job-{n % 5}/{n}/file.bin" for n in range(40)]
    await asyncio.gather(*(artifacts.put(name, name.encode() * 100) for name in names))
    assert await asyncio.gather(*map(artifacts.get, names)) == [name.encode() * 100 for name in names]
    await asyncio.gather(*map(artifacts.delete, names))
    with pytest.raises(FileNotFoundError):
        await artifacts.get(names[0])


# -- files ----------------------------------------------------------------------------------------------------------------
async def test_a_file_is_moved_to_its_place_when_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # E42
    steps: list[str] = []
    fsync, rename = os.fsync, os.rename

    def watch_fsync(file: int) -> None:
        steps.append("fsync " + Path(os.readlink(f"/proc/self/fd/{file}")).name.partition(".17.json")[0])
        fsync(file)

    def watch_rename(old: Path, new: Path) -> None:
        steps.append("rename")
        assert old.read_bytes() == b"data"
        assert not new.exists()
        rename(old, new)

    monkeypatch.setattr(os, "fsync", watch_fsync)
    monkeypatch.setattr(os, "rename", watch_rename)
    await make_artifacts(str(tmp_path)).put(NAME, b"data")
    folder = NAME.partition("/")[0]
    assert steps == [f"fsync {tmp_path.name}", "fsync ", "rename", f"fsync {folder}"]


async def test_a_write_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # E42
    artifacts = make_artifacts(str(tmp_path))
    await artifacts.put(NAME, b"old")

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        await artifacts.put(NAME, b"new")
    monkeypatch.undo()
    assert await artifacts.get(NAME) == b"old"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["17.json"]


async def test_what_a_killed_writer_left_is_removed_with_its_artifact(tmp_path: Path) -> None:  # E38
    artifacts = make_artifacts(str(tmp_path))
    await artifacts.put(NAME, b"whole")
    folder = (tmp_path / NAME).parent
    (folder / ".17.json.4711-1.draft").write_bytes(b"ha")
    (folder / ".170.json.4711-1.draft").write_bytes(b"another's")
    await artifacts.delete(NAME)
    assert [path.name for path in folder.iterdir()] == [".170.json.4711-1.draft"]


async def test_a_folder_goes_when_the_last_of_it_goes(tmp_path: Path) -> None:  # E38
    artifacts = make_artifacts(str(tmp_path / "kept"))
    job = NAME.partition("/")[0]
    for name in (NAME, f"{job}/17/a.xml", f"{job}/17/b.xml"):
        await artifacts.put(name, b"")
    for name, left in ((f"{job}/17/a.xml", 2), (NAME, 1), (f"{job}/17/b.xml", 0)):
        await artifacts.delete(name)
        assert len([path for path in (tmp_path / "kept").rglob("*") if path.is_file()]) == left
    assert list((tmp_path / "kept").iterdir()) == []


KILLED = """
import asyncio, os, sys
from holdfast.wiring import make_artifacts
rename, done = os.rename, 0

def slow(old, new):
    global done
    done += 1
    print(done, flush=True)
    rename(old, new)

os.rename = slow
artifacts = make_artifacts(sys.argv[1])

async def main():
    while True:
        await artifacts.put("job/1.json", bytes([done % 256]) * 3_000_000)

asyncio.run(main())
"""


def test_a_reader_finds_all_of_it_or_nothing_whenever_the_writer_is_killed(tmp_path: Path) -> None:  # E42
    for rounds in (1, 2, 5):
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for _ in range(rounds):
                assert writer.stdout.readline()
            writer.kill()
        place = tmp_path / "job" / "1.json"
        data = place.read_bytes() if place.exists() else b""
        assert len(data) in (0, 3_000_000)
        assert len(set(data)) <= 1


async def test_a_place_that_cannot_be_written_is_told_as_a_file_error(tmp_path: Path) -> None:  # E13 E42
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OSError) as refused:
        await make_artifacts(str(tmp_path / "taken")).put(NAME, b"1")
    assert classify(refused.value).error_class in (ErrorClass.PERMANENT, ErrorClass.TRANSIENT)
    await make_artifacts(str(tmp_path / "taken")).delete(NAME)


# -- S3 -------------------------------------------------------------------------------------------------------------------
async def test_objects_stand_under_their_prefix(s3: S3) -> None:  # E42
    for place in ("s3://bucket", "s3://bucket/deep/er/"):
        await make_artifacts(place).put(NAME, b"1")
    assert s3.keys("bucket") == [NAME, f"deep/er/{NAME}"]


async def test_a_bucket_that_is_away_is_a_transient_failure(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:  # E13 E42
    monkeypatch.setattr("holdfast.artifacts.s3._RETRIES", 1)
    artifacts = make_artifacts("s3://bucket")
    await artifacts.put(NAME, b"1")
    s3.stop()
    for work in (artifacts.put(NAME, b"2"), artifacts.get(NAME), artifacts.delete(NAME)):
        with pytest.raises(OSError) as failed:
            await work
        failure = classify(failed.value)
        assert (failure.code, failure.error_class) == ("IO_ERROR", ErrorClass.TRANSIENT)
        assert "s3://bucket" in failure.detail
        assert "\n" not in str(failed.value)


async def test_a_missing_bucket_is_not_taken_for_a_missing_artifact(s3: S3) -> None:  # E42
    artifacts = make_artifacts("s3://nowhere")
    for work in (artifacts.put(NAME, b"1"), artifacts.get(NAME), artifacts.delete(NAME)):
        with pytest.raises(OSError, match="there is no such bucket") as failed:
            await work
        assert not isinstance(failed.value, FileNotFoundError)


# -- choosing -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("place", "words"),
    [
        (
            "s3://",
            "s3:// needs a bucket, e.g. artifacts='s3://my-bucket/results'; keys are set as for any AWS client",
        ),
        ("file://srv/kept", "file://srv/kept is not a folder; write file:///path, or the path alone"),
    ],
)
def test_a_place_that_cannot_be_is_refused(place: str, words: str) -> None:  # E14 E42
    with pytest.raises(UsageError) as refused:
        make_artifacts(place)
    assert str(refused.value) == words


def test_without_the_driver_s3_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:  # E14
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "holdfast.artifacts.s3", raising=False)
    with pytest.raises(UsageError, match=r"S3 needs the driver obstore; pip install 'holdfast\[s3\]'"):
        make_artifacts("s3://bucket")
