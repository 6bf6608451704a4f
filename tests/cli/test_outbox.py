"""`holdfast outbox` and `holdfast relay`, as people call them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from holdfast import Holdfast
from holdfast.cli import main
from holdfast.cli.exit_codes import CONFLICT, NOT_FOUND, OK, USAGE


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
def ids(url: str) -> list[str]:
    async def publish() -> list[str]:
        async with Holdfast(url) as app:
            return [await app.outbox.publish("orders", {"n": n}, key="k") for n in range(3)]

    return asyncio.run(publish())


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["outbox", *words, "--json"]) == OK
    return json.loads(capsys.readouterr().out)


def test_messages_are_listed_by_number_page_by_page(
    url: str, ids: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    page = told(capsys, "list", "--url", url, "--limit", "2")
    assert [one["id"] for one in page["messages"]] == ids[:2]
    rest = told(capsys, "list", "--url", url, "--limit", "2", "--after", str(page["next"]))
    assert [one["id"] for one in rest["messages"]] == ids[2:]
    assert rest["next"] is None
    assert main(["outbox", "list", "--url", url, "--topic", "orders"]) == OK
    assert ids[0] in capsys.readouterr().out


def test_a_message_is_shown_parked_and_replayed(
    url: str, ids: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(capsys, "show", ids[0], "--url", url)["body"] == '{"n":0}'
    parked = told(capsys, "park", ids[0], "--url", url, "--reason", "the customer asked")
    assert (parked["state"], parked["error"]) == ("parked", "the customer asked")
    assert told(capsys, "lags", "--url", url)["topics"][0] | {"oldest_seconds": 0} == {
        "topic": "orders",
        "waiting": 2,
        "parked": 1,
        "oldest_seconds": 0,
    }
    assert main(["outbox", "park", ids[0], "--url", url, "--reason", "again"]) == CONFLICT
    assert told(capsys, "replay", ids[0], "--url", url) == {"replayed": 1}
    assert told(capsys, "replay", "--topic", "orders", "--url", url) == {"replayed": 0}
    assert told(capsys, "show", ids[0], "--url", url)["state"] == "waiting"


def test_parked_messages_are_discarded(
    url: str, ids: list[str], capsys: pytest.CaptureFixture[str]
) -> None:  # E44
    for name in ids[:2]:
        told(capsys, "park", name, "--url", url, "--reason", "the customer asked")
    assert told(capsys, "discard", *ids[:2], "--url", url, "--reason", "nobody wants them") == {
        "discarded": 2
    }
    assert [one["id"] for one in told(capsys, "list", "--url", url)["messages"]] == ids[2:]
    assert main(["outbox", "discard", ids[2], "--url", url, "--reason", "x"]) == CONFLICT
    assert main(["outbox", "discard", ids[0], "--url", url, "--reason", "x"]) == NOT_FOUND
    assert main(["outbox", "discard", ids[2], "--url", url]) == USAGE
    assert "only a parked one can be discarded" in capsys.readouterr().err


def test_what_is_not_there_or_not_said_is_one_line(
    url: str, ids: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["outbox", "show", "nothing", "--url", url]) == NOT_FOUND
    assert main(["outbox", "replay", "--url", url]) == USAGE
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "say which messages" in lines[1]


def test_a_relay_of_an_app_without_topics_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "topicless.py").write_text("from holdfast import Holdfast\napp = Holdfast('memory://')\n")
    assert main(["relay", "topicless:app"]) == USAGE
    assert "declare one with app.topic" in capsys.readouterr().err
