"""Long-running commands that start while their database cannot be reached."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast.runtime
from holdfast import Holdfast, StoreUnavailable
from holdfast.cli import apps, main
from holdfast.cli.exit_codes import DATABASE
from holdfast.errors import SchemaMismatch
from holdfast.wiring import make_store

pytestmark = pytest.mark.anyio


class Away:
    """The store is away for the first *looks*."""

    def __init__(self, looks: float, error: Exception) -> None:
        self.looks, self.error, self.seen = looks, error, 0

    def __call__(self, *given: Any) -> Any:
        self.seen += 1
        if self.seen <= self.looks:
            raise self.error
        return make_store(*given)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps, "FIRST_PAUSE", 0.001)


def app_without(looks: float, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> Away:
    away = Away(
        looks, error or StoreUnavailable("PostgreSQL at db:5432/jobs cannot be reached; is it running?")
    )
    monkeypatch.setattr(holdfast.runtime, "make_store", away)
    return away


async def test_a_database_that_comes_late_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:  # E14
    away = app_without(3, monkeypatch)
    caplog.set_level(logging.INFO, "holdfast")
    async with apps.retry_until_available(app := Holdfast("memory://")):
        await app.jobs.counts()
    assert away.seen == 4
    told = [line for line in caplog.text.splitlines() if "store." in line]
    assert ["store.unavailable" in told[0], "store.recovered" in told[-1], len(told)] == [True, True, 2]
    assert "is it running?" in told[0]


async def test_there_is_an_end_to_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    away = app_without(float("inf"), monkeypatch)
    with pytest.raises(StoreUnavailable):
        async with apps.retry_until_available(Holdfast("memory://", wait_for_store="20ms")):
            pytest.fail("it was opened")
    assert away.seen > 1


async def test_what_will_not_pass_by_itself_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    away = app_without(1, monkeypatch, SchemaMismatch("it has no Holdfast schema; run `holdfast migrate`"))
    with pytest.raises(SchemaMismatch):
        async with apps.retry_until_available(Holdfast("memory://")):
            pytest.fail("it was opened")
    assert away.seen == 1


APP = """
from holdfast import Holdfast

app = Holdfast("memory://", wait_for_store=0)

@app.task
async def hello() -> None: ...
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("shop_patient.py").write_text(APP)
    yield "shop_patient:app"
    sys.modules.pop("shop_patient", None)


@pytest.mark.parametrize("command", ["worker", "up", "serve", "relay"])
def test_whoever_gives_up_says_so_in_one_line_and_by_code_5(
    shop: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = app_without(float("inf"), monkeypatch)
    assert main([command, shop]) == DATABASE
    assert away.seen == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"holdfast: {away.error}"
