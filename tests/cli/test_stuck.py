"""`jobs stuck` and `jobs reclaim` from the command line, on a real SQLite file."""

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

from holdfast import Holdfast
from holdfast.cli import main
from holdfast.cli.options import current_user

Capture = pytest.CaptureFixture[str]
URL = "sqlite:///held.db"
APP = f"""
from holdfast import Holdfast

app = Holdfast({URL!r})

@app.task(retry=3)
async def shoot() -> None: ...
"""


@pytest.fixture(autouse=True)
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Two jobs that a living worker holds, of ann and of bob."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "240")
    (tmp_path / "held_app.py").write_text(APP)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))

    async def fill() -> list[str]:
        app = Holdfast(URL)

        @app.task(retry=3)
        async def shoot() -> None: ...

        async with app:
            ids: list[str] = [(await shoot.options(owner=owner).enqueue()).id for owner in ("ann", "bob")]
            store = (await app.runtime.engine()).store
            session = await store.open_session("slow", timedelta(hours=1))
            while len(await store.held(session)) < 2:
                await store.claim(session, [shoot.lane._replace(fair=True)], 2)
            return ids

    yield asyncio.run(fill())
    structlog.reset_defaults()


def run(capsys: Capture, *command: str, code: int = 0) -> str:
    assert main(["jobs", *command]) == code
    out, err = capsys.readouterr()
    return out + err


def answer(capsys: Capture, *command: str) -> Any:
    return json.loads(run(capsys, *command, "--app", "held_app:app", "--json"))


def test_what_is_stuck_is_listed_and_reclaimed(capsys: Capture, held: list[str]) -> None:  # E30 E67 S5
    app, now = ("--app", "held_app:app"), ("--longer-than", "0s")
    assert "No job is stuck." in run(capsys, "stuck", *app)  # not for half an hour
    assert {one["id"] for one in answer(capsys, "stuck", *now)["jobs"]} == set(held)
    [anns] = answer(capsys, "stuck", *now, "--owner", "ann", "--task", "shoot")["jobs"]
    assert (anns["id"], anns["worker"], anns["longer_than"]) == (held[0], "slow", "0s")
    told = run(capsys, "stuck", *app, *now)
    assert held[0] in told
    assert "1/3" in told
    assert answer(capsys, "reclaim", held[1], *now) == {"found": 1, "reclaimed": 1}
    assert [one["id"] for one in answer(capsys, "stuck", *now)["jobs"]] == held[:1]
    assert run(capsys, "reclaim", *app, *now) == "1 of 1 stuck jobs are reclaimed\n"
    assert run(capsys, "reclaim", *app, *now) == "0 of 0 stuck jobs are reclaimed\n"
    assert current_user() in run(capsys, "show", held[1], *app)  # S8


def test_without_an_app_it_says_what_it_needs(capsys: Capture) -> None:  # E30 E67
    for command in ("stuck", "reclaim"):
        told = run(capsys, command, "--url", URL, code=2)
        assert "name the app with --app pkg.module:name" in told
        assert told.count("\n") == 1
