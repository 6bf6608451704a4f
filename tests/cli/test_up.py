"""What `holdfast up` prints: calls that work as they stand."""

from __future__ import annotations

import asyncio
import subprocess

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
