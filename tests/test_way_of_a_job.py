"""Which of our source and SQL files a plain job passes: the fewer, the sooner a reader knows the way.

A file counts when any of its functions runs, or its statement is looked up, on any thread.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.worker.claiming import Claimer
from holdfast.worker.running import RunningAttempts
from holdfast.worker.settlements import SettlementWriter
from tests.apps import new_app, working

SOURCE = Path(holdfast.__file__).parent
PAGE = (Path(__file__).parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")
#: A job is traced this often. The fewest files count: now and then a loop in the background runs at the same moment.
ROUNDS = 5
MOST = {"enqueue": {"sqlite": 16, "postgres": 16}, "execute": {"sqlite": 29, "postgres": 22}}
#: The steps in ARCHITECTURE.md that belong to each way.
STEPS = {"enqueue": "enqueue", "execute": "claim|attempt|settle"}
_CLAIM: CodeType = Claimer._claim_half.__code__
_START: CodeType = RunningAttempts.start.__code__
#: Called when the store has answered a settlement.
_ANSWERED: CodeType = SettlementWriter._expect.__code__


class Trace:
    """The files that ran between `start` and `stop`. Those before the claim that brings a job can be left out."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._on = False
        self._claims: dict[FrameType, set[str]] | None = None  #: what ran since each claim of a job began
        self.settled = asyncio.Event()

    def start(self, *, at_claim: bool = False) -> None:
        self.files, self._claims, self._on = set(), {} if at_claim else None, True

    def stop(self) -> set[str]:
        self._on = False
        return self.files

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        if frame.f_code is _ANSWERED:
            self._on = False
            self.settled.set()
        if not self._on:
            return
        if self._claims is not None:
            if frame.f_code is _CLAIM and frame not in self._claims:
                self._claims[frame] = set()
            elif frame.f_code is _START and frame.f_locals["admitted"]:
                assert frame.f_back is not None
                self.files, self._claims = self._claims[frame.f_back], None
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(SOURCE):
            self.passed(str(path.relative_to(SOURCE)))

    def passed(self, file: str) -> None:
        if self._on:
            for files in [self.files] if self._claims is None else self._claims.values():
                files.add(file)


class Statements(dict[str, str]):
    """The texts of SQL files, which note when one is used."""

    def __init__(self, texts: dict[str, str], trace: Trace) -> None:
        super().__init__(texts)
        self._trace = trace

    def __getitem__(self, name: str) -> str:
        self._trace.passed(f"{name}.sql")
        return super().__getitem__(name)


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch, database_url: str) -> Iterator[Trace]:
    new_app(database_url).runtime.make_store()  # imports the modules of the store
    trace = Trace()
    for module in [module for name, module in sys.modules.items() if name.startswith("holdfast.stores.")]:
        if isinstance(texts := getattr(module, "SQL", None), dict):
            monkeypatch.setattr(module, "SQL", Statements(texts, trace))
    threading.setprofile(trace.profile)
    sys.setprofile(trace.profile)
    yield trace
    sys.setprofile(None)
    threading.setprofile(None)


@pytest.fixture
def store(database_url: str) -> str:
    return "postgres" if database_url.startswith("postgres") else "sqlite"


def check(rounds: list[set[str]], way: str, store: str) -> None:
    """Fail when every round passed too many files, or when the best one did not pass those that the page lists."""
    files = min(rounds, key=len)
    assert len(files) <= MOST[way][store], f"{len(files)}:\n" + "\n".join(sorted(files))
    steps = re.findall(rf"^(?:{STEPS[way]}) .*(?:\n .*)*", PAGE, re.MULTILINE)
    listed = {name.replace("sqlite", store) for name in re.findall(r"[\w/]+\.py", " ".join(steps))}
    assert len(steps) == len(STEPS[way].split("|"))
    assert listed - files - {"stores/postgres/writer.py"} == set()


async def test_an_enqueue_passes_few_files(trace: Trace, database_url: str, store: str) -> None:
    way = []
    async with new_app(database_url) as app:
        greet = greeter(app)
        await greet.enqueue("first")
        for _ in range(ROUNDS):
            trace.start()
            await greet.enqueue("next")
            way.append(trace.stop())
    check(way, "enqueue", store)


async def test_from_claim_to_completion_a_job_passes_few_files(
    trace: Trace, database_url: str, store: str
) -> None:
    way = []
    async with new_app(database_url, reclaim_every="1m") as app:
        greet = greeter(app)
        async with working(app, maintenance=False, queues=["default"]):
            for _ in range(ROUNDS):
                trace.settled.clear()
                await greet.enqueue("next")
                await trace.settled.wait()
                way.append(trace.stop())
                await asyncio.sleep(0.1)
                trace.start(at_claim=True)
    check(way[1:], "execute", store)


def greeter(app: Holdfast) -> Any:
    @app.task
    async def greet(name: str) -> str:
        return name

    return greet
