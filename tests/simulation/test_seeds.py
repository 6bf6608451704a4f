"""The whole engine under troubles drawn from seeds: whatever happens to it, every promise is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.stores.memory.tables import Job
from tests.simulation.places import Files, InMemory, Place, quick_folder
from tests.simulation.simulate import demand_kept, simulate

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(120)

CHUNK = 30
#: First seeds of the chunks that every change is tried with.
MEMORY, SQLITE = range(0, 270, CHUNK), range(0, 30, CHUNK)
#: Once found something, and kept for ever: (store, seed) → what. A change of the simulation makes other stories of the same
#: numbers; what they found is told again in `test_stories.py` or planted by `tools/mutants.py`.
REGRESSIONS = {
    (
        "memory",
        23,
    ): "a job was given back while the answer to its claim was on its way, and ran here and elsewhere",
    (
        "memory",
        24,
    ): "a look that was answered late ended the doubt about a claim, and its job hung as long as its worker lived",
    ("memory", 256): "a job was given back while its trial was being ended, and ran again",
    (
        "memory",
        326,
    ): "the session ended while the lanes were being asked for, and the claim was made without one",
    ("sqlite", 2): "a job was given back whose claim was never answered, and the event said attempt 0",
    ("memory", 3): "two such jobs were given back in another order in every process",
}
#: What must have happened in every chunk: or the troubles are not troubling. Late results are rarer than that; the exhaustive
#: check has them in every run.
SOMETIMES = {
    *(f"blow: {blow}" for blow in ("kill", "stall", "stop", "away", "gateway")),
    *(f"answer lost: {verb}" for verb in ("claim", "settle", "enqueue", "beat", "promote", "time_out")),
    *(f"refused: {verb}" for verb in ("claim", "settle", "enqueue", "beat")),
    *(f"answer: {answer}" for answer in ("applied", "repeated")),
    *(f"event: {kind}" for kind in ("complete", "retry", "failed", "released", "reclaimed", "cancelled")),
    *(f"event: {kind}" for kind in ("manual_retry", "timed_out", "snoozed", "breaker_opened")),
    *("slow", "answered late", "sent twice", "slow beat", "clicks", "clicks refused", "paid"),
}


@pytest.fixture
def files() -> Iterator[Files]:
    with quick_folder() as folder:
        yield Files(folder)


def play(first: int, place: Callable[[], Place]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(first, first + CHUNK):
        outcome = simulate(seed, place())
        demand_kept(outcome)
        counts.update(outcome.counts)
    return counts


@pytest.mark.parametrize("first", MEMORY)
def test_no_seed_breaks_a_promise(first: int) -> None:  # E2a E3 E4 E5 E6 E7 E8 E9 E26 E30 E31 E35 E40
    assert play(first, InMemory).keys() >= SOMETIMES


@pytest.mark.parametrize("first", SQLITE)
def test_no_seed_breaks_a_promise_on_sqlite(first: int, files: Files) -> None:  # E4 E5 E6 E8 E9 E30 E50 E60
    assert play(first, files.new).keys() >= SOMETIMES


@pytest.mark.parametrize(("store", "seed"), REGRESSIONS)
def test_a_seed_that_once_found_something_is_quiet(store: str, seed: int, files: Files) -> None:  # E5
    demand_kept(simulate(seed, InMemory() if store == "memory" else files.new()))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_seed_tells_the_same_story_every_time(seed: int, files: Files) -> None:
    story = simulate(seed).log
    assert simulate(seed).log == story
    assert simulate(seed, files.new()).log == simulate(seed, files.new()).log
    assert simulate(seed + 1).log != story


def test_a_seed_tells_the_same_story_in_another_process() -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    command = [sys.executable, "-m", "tests.simulation", "3"]
    told = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
    assert told.stdout.rstrip() == simulate(3).log


def test_a_planted_bug_is_found_and_told_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:  # E4
    monkeypatch.setattr(
        Job, "holds", lambda job, lease: job.live is not None
    )  # any lease of a running job will do
    found = next(outcome for seed in range(100) if (outcome := simulate(seed)).broken is not None)
    story = found.story()
    assert "(E4)" in story
    assert f"python -m tests.simulation --store memory {found.seed}" in story
