"""`holdfast credits` on a real SQLite file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.cli import main
from holdfast.contrib.credits import Credits

Capture = pytest.CaptureFixture[str]
URL = "sqlite:///shop.db"


def shop() -> Holdfast:
    app = Holdfast(URL, extensions=[Credits()])

    @app.task(extra={"price": 2})
    async def shoot() -> None: ...

    return app


def with_app(do: Callable[[Holdfast], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with shop() as app:
            return await do(app)

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "240")
    with_app(lambda app: app.jobs.counts())
    return tmp_path


def answer(capsys: Capture, *command: str, code: int = 0) -> Any:
    assert main([*command, "--url", URL, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def said(capsys: Capture, *command: str, code: int = 0) -> str:
    assert main([*command, "--url", URL]) == code
    out, err = capsys.readouterr()
    return out + err


def test_credits_are_given_looked_at_and_corrected(capsys: Capture) -> None:  # E67 S3
    made = answer(capsys, "credits", "grant", "user:7", "10", "--expires", "90d", "--id", "p-1")
    assert (made["account"], made["amount"], made["id"]) == ("user:7", 10, "p-1")
    assert "was given 10 credits until" in said(capsys, "credits", "grant", "user:7", "10", "--id", "p-1")
    answer(capsys, "credits", "adjust", "user:7", "--credits=-3", "--reason", "twice")
    answer(capsys, "credits", "open", "user:8", "--paid-by", "org:acme")
    shown = answer(capsys, "credits", "show", "user:7")
    assert (shown["available"], shown["granted"]) == (7, 7)
    assert "granted" in said(capsys, "credits", "show", "user:7")
    page = answer(capsys, "credits", "accounts", "--limit", "2")
    assert ([account["id"] for account in page["accounts"]], page["next"]) == (
        ["org:acme", "user:7"],
        "user:7",
    )
    assert "org:acme" in said(capsys, "credits", "accounts", "--after", "user:7")
    entries = answer(capsys, "credits", "ledger", "user:7")["entries"]
    assert [entry["amount"] for entry in entries] == [3, -3, -10, 10]
    assert entries[0]["note"] == "twice"
    assert entries[0]["by"].startswith("cli")
    assert "+10" in said(capsys, "credits", "ledger")


def test_a_retry_from_the_command_line_is_paid_for(capsys: Capture) -> None:  # E33 S3
    async def cancel(app: Holdfast) -> str:
        await Credits.of(app).grant("ann", 3)
        handle = await app.tasks["shoot"].options(owner="ann").enqueue()
        await app.jobs.cancel(handle.id)
        return str(handle.id)

    job = with_app(cancel)
    answer(capsys, "jobs", "retry", job)
    assert answer(capsys, "credits", "show", "ann")["reserved"] == 2
    answer(capsys, "jobs", "cancel", job)
    answer(capsys, "credits", "adjust", "ann", "--credits=-2", "--reason", "test")
    told = said(capsys, "jobs", "retry", job, code=1)
    assert "ann has 1 credits, and this takes 2; add credits and send it again" in told


def test_what_does_not_balance_is_told_and_what_is_left_behind_is_settled(capsys: Capture) -> None:
    async def leave(app: Holdfast) -> None:
        await Credits.of(app).grant("ann", 3)
        handle = await app.tasks["shoot"].options(owner="ann").enqueue()
        (await app.runtime.engine()).store.hooks = []
        await app.jobs.cancel(handle.id)

    assert "The ledger balances." in said(capsys, "credits", "check")
    with_app(leave)
    assert "are still reserved" in said(capsys, "credits", "check", code=1)
    assert answer(capsys, "credits", "check", "--settle") == {"problems": [], "settled": 1}

    async def spoil(app: Holdfast) -> None:
        store = (await app.runtime.engine()).store
        await store.transact(
            lambda t: t.execute("UPDATE holdfast_credit_entry SET amount = 4 WHERE amount = 3")
        )

    with_app(spoil)
    told = answer(capsys, "credits", "check", code=1)["problems"]
    assert any("sum to 1, not to 0" in line for line in told)
    assert "ann has 3 available, its entries say 4, its grants have 3 left" in told


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (("show", "nobody"), 4, "no account has the name 'nobody'"),
        (("grant", "ann", "0"), 2, "amount is 0; it is a whole number"),
        (("grant", "ann", "1", "--expires", "soon"), 2, "soon"),
        (("adjust", "ann", "--credits=-1", "--reason", "x"), 1, "ann has 0 credits, and this takes 1"),
        (("open", "ann", "--paid-by", "bad\nname"), 2, "cannot name an account"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    capsys: Capture, command: tuple[str, ...], code: int, words: str
) -> None:
    told = said(capsys, "credits", *command, code=code)
    assert words in told
    assert told.count("\n") == 1
