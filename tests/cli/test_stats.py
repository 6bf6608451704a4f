"""`holdfast stats`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.cli import main
from holdfast.statistics.folding import fold
from tests.apps import ONCE, work

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"

    async def run() -> None:
        app = Holdfast(url)

        @app.task(retry=ONCE, queue="mail")
        async def send(number: int) -> None:
            if number == 0:
                raise RuntimeError("no")

        async with app:
            await send.enqueue_many(range(4))
            await work(app, maintenance=False)
            while await fold((await app.runtime.engine()).store):
                pass

    asyncio.run(run())
    return url


def printed(capsys: Capture, *args: str) -> str:
    capsys.readouterr()
    assert main(["stats", *args]) == 0
    return capsys.readouterr().out


def shown(capsys: Capture, *args: str) -> Any:
    return json.loads(printed(capsys, *args, "--json"))


def test_an_overview_says_what_happened(url: str, capsys: Capture) -> None:  # E67 E68a
    lines = [line.split() for line in printed(capsys, "--url", url).splitlines()]
    assert ["completed", "3"] in lines
    assert ["failed", "1"] in lines
    found = shown(capsys, "--url", url)
    assert (found["counts"]["enqueued"], found["succeeded_at"], found["lag_ms"]) == (4, {"1": 3}, 0)


def test_a_breakdown_is_a_table(url: str, capsys: Capture) -> None:  # E67 E68a
    [head, _, row] = printed(capsys, "--url", url, "--by", "queue").strip().splitlines()
    assert head.split()[:5] == ["queue", "enqueued", "completed", "retried", "failed"]
    assert row.split()[:5] == ["mail", "4", "3", "0", "1"]
    assert [row["name"] for row in shown(capsys, "--url", url, "--by", "code")["rows"]] == ["", "UNKNOWN"]


def test_a_metric_is_shown_over_time(url: str, capsys: Capture) -> None:  # E67 E68a
    options = ("--url", url, "--metric", "completed", "--by", "task", "--since", "3m")
    assert printed(capsys, *options).splitlines()[0].split() == ["minute", "send"]
    found = shown(capsys, *options, "--task", "send")
    assert sum(found["lines"][0]["values"]) == 3
    assert "Nothing happened" in printed(capsys, *options, "--queue", "other")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--metric", "speed"], "there is no metric 'speed'"),
        (["--by", "owner"], "by is 'owner'; it is one of queue, task, dependency, code"),
        (["--since", "soon"], "since: 'soon' is not a duration"),
    ],
)
def test_bad_options_get_one_line(
    url: str, options: list[str], says: str, capsys: Capture
) -> None:  # E67 E68a
    assert main(["stats", "--url", url, *options]) == 2
    assert says in capsys.readouterr().err
