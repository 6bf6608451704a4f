"""Reads the records: one JSON file for each kind of run, each with the command that makes it."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs" / "explanation" / "evidence"
SPEED = ROOT / "docs" / "explanation" / "speed.md"

#: The command that makes each file again. The file contains it, too.
COMMANDS = {
    "simulation-memory": "python -m tests.simulation 0 {seeds} --record {file}",
    "simulation-sqlite": "python -m tests.simulation --store sqlite 0 {fifth} --record {file}",
    "exhaustive": "python -m tests.exhaustive --record {file}",
    "power-cuts": "python -m tests.torture.cuts {file}",
    "torture-sqlite": "python -m tests.torture --store sqlite --minutes {minutes} --record {file}",
    "torture-postgres": "python -m tests.torture --store postgres --minutes {minutes} --record {file}",
    "torture-brokers": "python -m tests.torture --store postgres+brokers --minutes {minutes} --record {file}",
    "mutants": "python tools/mutants.py {mutants} --record {file}",
}


class Simulation(msgspec.Struct):
    """A run of the simulation on many seeds."""

    command: str
    seeds: int
    jobs: int
    virtual_seconds: float
    cpu_seconds: float
    broken: int
    counts: dict[str, int]

    def sum(self, *beginnings: str) -> int:
        """Return the sum of the counters whose names start with one of these."""
        return sum(number for name, number in self.counts.items() if name.startswith(beginnings))


class Size(msgspec.Struct):
    """The number of states and steps of a scenario."""

    states: int
    steps: int


class Exhaustive(msgspec.Struct):
    """A run of the exhaustive tests."""

    command: str
    scenarios: dict[str, Size]


class Cuts(msgspec.Struct):
    """The power cuts with one setting of `synchronous`."""

    words: int  #: acknowledgements
    writes: int
    cuts: int
    losses: int


class PowerCuts(msgspec.Struct):
    """A run of the power cuts, with `synchronous=FULL` and `NORMAL`."""

    command: str
    full: Cuts
    normal: Cuts


class Torture(msgspec.Struct):
    """A torture run on one store."""

    store: str
    command: str
    seed: int
    minutes: float
    lease_seconds: float
    acknowledged: int
    ended: dict[str, int]
    attempts: int
    blows: dict[str, int]
    clicks: int
    clicks_refused: int
    events: dict[str, int]
    exits: dict[str, int]
    back: list[float]  #: seconds from the kill of a worker until each of its jobs was queued again
    again: list[float]  #: … and until each of its jobs ran again
    lost: list[str]
    stuck: list[str]
    second_ends: list[str]
    broken: list[str]
    cores: int = 0
    load: float = 0.0  #: of the machine, over the last 15 minutes
    messages: int = 0  #: that were published to a broker
    doubles: int = 0  #: messages that arrived more than once

    @property
    def limit(self) -> float:
        """The target in seconds for the 99th percentile of `back` and `again`."""
        return self.lease_seconds + 5


class Mutants(msgspec.Struct):
    """The planted bugs, and the net that caught each; None for a bug that no net caught."""

    command: str
    caught: dict[str, str | None]


class Records(msgspec.Struct):
    """All records of the page."""

    memory: Simulation
    sqlite: Simulation
    exhaustive: Exhaustive
    cuts: PowerCuts
    tortures: list[Torture]
    mutants: Mutants
    speed: list[list[str]]  #: rows: store, what, compared, Holdfast, target, met or missed


def load(folder: Path = KEPT) -> Records:
    """Read the records in *folder*, and the targets on the page about speed."""

    def read(name: str, kind: type[T]) -> T:
        return msgspec.json.decode((folder / f"{name}.json").read_bytes(), type=kind)

    return Records(
        memory=read("simulation-memory", Simulation),
        sqlite=read("simulation-sqlite", Simulation),
        exhaustive=read("exhaustive", Exhaustive),
        cuts=read("power-cuts", PowerCuts),
        tortures=[
            read(f"torture-{where}", Torture)
            for where in ("sqlite", "postgres", "brokers")
            if (folder / f"torture-{where}.json").exists()
        ],
        mutants=read("mutants", Mutants),
        speed=_speed(SPEED.read_text(encoding="utf-8")),
    )


def _speed(page: str) -> list[list[str]]:
    """Return the rows of the tables of targets on the page about speed."""
    rows, store = [], ""
    for line in page.split("## What is missed")[0].splitlines():
        if line.startswith("### On "):
            store = line.removeprefix("### On ")
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[-1] in ("met", "missed"):
            rows.append([store, *cells])
    return rows
