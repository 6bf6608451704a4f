"""A disk without space: readiness and health say so, until a write goes through again. Files are for their owner only."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast import Holdfast, StoreUnavailable
from holdfast.artifacts.files import FileArtifacts
from holdfast.health import inputs as health_inputs
from holdfast.server import api
from systems.common.parts import Part, create_private

pytestmark = pytest.mark.anyio


def set_most_pages(store: Any, most: int | None) -> None:
    """Let SQLite itself say that the disk is full; None: let it grow again."""
    connection = store._database.writer._connection
    most = connection.execute("PRAGMA page_count").fetchone()[0] if most == 0 else most or 1_000_000
    connection.execute(f"PRAGMA max_page_count = {most}")


async def test_readiness_and_health_see_a_full_disk_until_a_write_goes_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # E65
    monkeypatch.setattr(health_inputs, "READY_WITHIN", 20.0)
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    async def note(text: str) -> None: ...

    transport = httpx2.ASGITransport(app=api(app, without_key="loopback"), client=("127.0.0.1", 1))
    async with app, httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as asking:
        store = (await app.runtime.engine()).store
        assert (await asking.get("/readyz")).status_code == 200
        set_most_pages(store, 0)
        with pytest.raises(StoreUnavailable, match="no space"):
            await note.enqueue("x" * 900_000)
        answer = await asking.get("/readyz")
        assert (answer.status_code, answer.text) == (
            503,
            "the database cannot be written to; is its disk full?\n",
        )
        assert (await asking.get("/api/v1/health")).status_code == 503
        set_most_pages(store, None)
        assert (await asking.get("/readyz")).status_code == 200
        assert (await asking.get("/api/v1/health")).status_code == 200


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_files_of_a_store_and_of_artifacts_are_for_their_owner_only(tmp_path: Path) -> None:  # E66
    before = os.umask(0o022)
    try:
        app = Holdfast(f"sqlite:///{tmp_path}/jobs.db")

        @app.task
        async def note(text: str) -> None: ...

        async with app:
            await note.enqueue("a")
            files = sorted(path.name for path in tmp_path.glob("jobs.db*"))
            assert files == ["jobs.db", "jobs.db-shm", "jobs.db-wal"]
            assert {mode(path) for path in tmp_path.glob("jobs.db*")} == {0o600}
            with ThreadPoolExecutor(1) as threads:
                await FileArtifacts(tmp_path / "kept", threads).put("a/b", b"data")
        assert mode(tmp_path / "kept" / "a" / "b") == 0o600
        assert mode(tmp_path / "kept") == mode(tmp_path / "kept" / "a") == 0o700
        with Part(tmp_path / "uploads" / "x.pdf", "new") as part:
            part.write(b"data")
            part.publish()
        create_private(tmp_path / "books" / "ledger.db")
        assert mode(tmp_path / "uploads" / "x.pdf") == mode(tmp_path / "books" / "ledger.db") == 0o600
        assert mode(tmp_path / "uploads") == mode(tmp_path / "books") == 0o700
    finally:
        os.umask(before)


async def test_a_database_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    file.touch(0o640)
    file.chmod(0o640)
    async with Holdfast(f"sqlite:///{file}") as app:
        await app.jobs.counts()
    assert mode(file) == 0o640
