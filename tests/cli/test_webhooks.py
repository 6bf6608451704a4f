"""`holdfast webhooks`, as a person at a terminal uses it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import structlog

from holdfast import Holdfast
from holdfast.cli import main


@pytest.fixture(autouse=True)
def database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[None]:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", f"sqlite:///{tmp_path}/jobs.db")
    monkeypatch.setenv("COLUMNS", "240")  # so that no cell is folded
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    assert main(["migrate"]) == 0
    capsys.readouterr()
    yield
    structlog.reset_defaults()


def told(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, object]:
    assert main(["webhooks", *args, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_a_webhook_is_made_steered_and_removed(capsys: pytest.CaptureFixture[str]) -> None:  # E61 E67
    made = told(capsys, "create", "https://1.1.1.1/hook", "--event", "complete", "--owner", "ann")
    name = str(made["id"])
    assert str(made["secret"]).startswith("whsec_")
    assert "secrets" not in made
    assert "secret" not in told(capsys, "show", name)
    assert told(capsys, "rotate", name)["secret"] != made["secret"]
    assert told(capsys, "retire", name)["id"] == name
    assert told(capsys, "disable", name)["disabled_at"] is not None
    assert told(capsys, "enable", name)["disabled_at"] is None
    assert told(capsys, "replay", name)["action"] == "replay"
    inbound = told(capsys, "inbound", "--owner", "ann")
    assert inbound["inbound"] is True
    assert main(["webhooks", "list"]) == 0
    shown = capsys.readouterr().out
    assert name in shown
    assert "whsec_" not in shown
    assert told(capsys, "remove", name) == {"id": name, "removed": True}
    assert main(["webhooks", "show", name]) == 4
    assert "no webhook has the id" in capsys.readouterr().err


def test_an_address_that_leads_inside_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["webhooks", "create", "http://169.254.169.254/"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_test_without_a_worker_says_so_at_once_and_sends_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = str(told(capsys, "create", "https://1.1.1.1/hook")["id"])
    assert main(["webhooks", "test", name]) == 1
    assert capsys.readouterr().err == (
        "holdfast: no worker serves the queue 'holdfast.webhooks', so nothing was sent; start one: holdfast worker MODULE:APP\n"
    )
    assert main(["jobs", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == []


def test_a_test_that_takes_too_long_ends_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    name = str(told(capsys, "create", "https://1.1.1.1/hook")["id"])
    asyncio.run(_open_a_session())
    assert main(["webhooks", "test", name, "--timeout", "10ms"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("holdfast: job ")
    assert "is still queued after 10ms. " in said
    assert said.count("\n") == 1


async def _open_a_session() -> None:
    """A worker that lives and does nothing."""
    async with Holdfast() as app:
        await (await app.runtime.engine()).store.open_session("w1", timedelta(minutes=1))
