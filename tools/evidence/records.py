"""What was recorded, as the page needs it: one small JSON file for each kind of run, each naming the command that makes it."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs" / "explanation" / "evidence"
SPEED = ROOT / "docs" / "explanation" / "speed.md"

#: File → the command that makes it again. Each is also named in its file.
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
    command: str
    seeds: int
    jobs: int
    virtual_seconds: float
    cpu_seconds: float
    broken: int
    counts: dict[str, int]

    def sum(self, *beginnings: str) -> int:
        return sum(number for name, number in self.counts.items() if name.startswith(beginnings))


class Size(msgspec.Struct):
    states: int
    steps: int


class Exhaustive(msgspec.Struct):
    command: str
    scenarios: dict[str, Size]


class Cuts(msgspec.Struct):
    words: int  #: acknowledgements
    writes: int
    cuts: int
    losses: int


class PowerCuts(msgspec.Struct):
    command: str
    full: Cuts
    normal: Cuts


class Torture(msgspec.Struct):
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
    back: list[float]  #: seconds from the death of a worker until a job of it was back in line
    again: list[float]  #: … and until it ran again
    lost: list[str]
    stuck: list[str]
    second_ends: list[str]
    broken: list[str]
    cores: int = 0
    load: float = 0.0  #: of the machine, over the last quarter of an hour
    messages: int = 0  #: that were to be brought to a broker
    doubles: int = 0  #: that arrived once more

    @property
    def limit(self) -> float:
        """So long may a job wait after its worker was killed, and 99 of 100 do not."""
        return self.lease_seconds + 5


class Mutants(msgspec.Struct):
    command: str
    caught: dict[str, str | None]


class Records(msgspec.Struct):
    memory: Simulation
    sqlite: Simulation
    exhaustive: Exhaustive
    cuts: PowerCuts
    tortures: list[Torture]
    mutants: Mutants
    speed: list[list[str]]  #: rows: store, what, compared, Holdfast, target, met or missed


def load(folder: Path = KEPT) -> Records:
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
    """The rows of the tables of targets on the page about speed."""
    rows, store = [], ""
    for line in page.split("## What is missed")[0].splitlines():
        if line.startswith("### On "):
            store = line.removeprefix("### On ")
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[-1] in ("met", "missed"):
            rows.append([store, *cells])
    return rows
