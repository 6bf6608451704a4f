"""What `holdfast up` prints: calls and addresses that work as they stand."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Any

import httpx2
import pytest

from holdfast import THIS_JOB, Holdfast, Job
from holdfast.cli.serve import answering
from holdfast.cli.worker import how_to

pytestmark = pytest.mark.anyio


def test_the_example_has_the_arguments_that_a_call_needs_in_their_order(sqlite_url: str) -> None:
    app = Holdfast(sqlite_url)

    @app.task
    async def convert(pdf: str, align: str, pages: int = 1, *, name: str, job: Job = THIS_JOB) -> None: ...

    python, shell, listed = how_to(app, "shop:app")
    assert python.endswith(".enqueue_sync(pdf=…, align=…, name=…)")
    assert shell.endswith("holdfast enqueue convert pdf=… align=… name=… --app shop:app")
    assert listed.endswith("holdfast jobs list --app shop:app")


async def _look(app: Holdfast, capsys: pytest.CaptureFixture[str], key: str) -> tuple[str, str]:
    """The printed line, and what a shell gets that runs it."""
    async with app, answering(app, ("127.0.0.1", 0)):
        line = capsys.readouterr().out.splitlines()[-1]
        command = line.partition("curl ")[2].partition("  (")[0]
        run = ["sh", "-c", f"KEY={key}; curl -sS {command}"]
        done = await asyncio.to_thread(subprocess.run, run, capture_output=True, text=True, timeout=30)
    return line, done.stdout


async def test_the_printed_curl_needs_no_key_until_there_is_one(
    sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    app = Holdfast(sqlite_url)
    line, answer = await _look(app, capsys, "")
    assert "KEY" not in line
    assert answer.startswith('{"jobs":[]')
    async with app:
        _, key = await app.keys.create("viewer")
    line, answer = await _look(app, capsys, key)
    assert '-H "Authorization: Bearer $KEY"' in line
    assert answer.startswith('{"jobs":[]')


async def _dashboard_line(app: Holdfast, capsys: pytest.CaptureFixture[str], **options: Any) -> str:
    async with app, answering(app, ("127.0.0.1", 0), **options):
        lines = capsys.readouterr().out.splitlines()
        [line] = [line for line in lines if line.startswith("dashboard:")]
        root, _, token = line.split()[1].partition("#token=")
        async with httpx2.AsyncClient(base_url=root) as client:
            assert (await client.get("/")).headers["content-type"].startswith("text/html")
            for expected in (201, 401) if token else ():  # it works once
                opened = await client.post("api/v1/session", json={"token": token})
                assert opened.status_code == expected
    return line


async def test_the_printed_dashboard_lets_in_once_until_there_is_a_key(
    sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:  # E68
    app = Holdfast(sqlite_url)
    assert "#token=" in await _dashboard_line(app, capsys)
    async with app:
        await app.keys.create("viewer")
    assert "sign in with a key" in await _dashboard_line(app, capsys)
    assert "#token=" in await _dashboard_line(app, capsys, no_auth=True)
