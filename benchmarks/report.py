"""Computes figures from cells: values by round, ratios within a round, and comparisons with the targets.

On a shared machine a rate alone means little. A ratio is taken between two cells of the same round, measured
seconds or minutes apart. Reported are the median over the rounds, the minimum and the maximum.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.subjects import FLOOR, OURS, SUBJECTS, Store

RESULTS = Path(__file__).parent / "results" / "speed.json"
Results = dict[str, Any]
ByRound = dict[int, float]
PEERS = {
    store: [subject.name for subject in SUBJECTS if subject.role == "peer" and subject.store == store]
    for store in OURS
}


def load() -> Results:
    """Read the results of the last full run."""
    results: Results = json.loads(RESULTS.read_text())
    return results


def rounded(value: Any) -> Any:
    """Round numbers to four digits. Further digits are noise."""
    if isinstance(value, list):
        return [rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.4g}") if abs(value) < 1000 else round(value)
    return value


class Cells:
    """The complete cells of a run, without those of the trial round."""

    def __init__(self, results: Results) -> None:
        self._cells = [
            cell
            for cell in results["cells"]
            if cell["round"] > 0 and "error" not in cell and "unfinished" not in cell
        ]

    def values(self, subject: str, scenario: str, figure: str = "rate") -> ByRound:
        """Return a figure by round."""
        return {
            cell["round"]: float(cell[figure])
            for cell in self._cells
            if cell["subject"] == subject and cell["scenario"] == scenario and figure in cell
        }

    def middle(self, subject: str, scenario: str, figure: str = "rate") -> float | None:
        """Return the median of a figure; None if it was not measured."""
        found = self.values(subject, scenario, figure)
        return median(found.values()) if found else None

    def subjects(self) -> list[str]:
        """Return the names of the measured subjects."""
        measured = {cell["subject"] for cell in self._cells}
        return [subject.name for subject in SUBJECTS if subject.name in measured]

    def best_names(self, store: Store, scenario: str) -> str:
        """Return the names of the peers that were the best in a round."""
        best = self.best_peer(store, scenario)
        found = [
            peer
            for peer in PEERS[store]
            if any(best[number] == value for number, value in self.values(peer, scenario).items())
        ]
        return ", ".join(found)

    def best_peer(self, store: Store, scenario: str, figure: str = "rate") -> ByRound:
        """Return the highest figure of the peers on this store, by round."""
        best: ByRound = {}
        for peer in PEERS[store]:
            for number, value in self.values(peer, scenario, figure).items():
                best[number] = max(best.get(number, 0.0), value)
        return best


def ratios(over: ByRound, under: ByRound) -> list[float]:
    """Return the ratio within each round that has both values."""
    return [over[number] / under[number] for number in sorted(over) if under.get(number)]


# --- targets

Compute = Callable[[Cells], list[float]]


@dataclass(frozen=True, slots=True)
class Target:
    """A target for one figure of Holdfast."""

    store: Store
    what: str  #: what is measured
    compare: str  #: what it is compared with
    bound: float
    compute: Compute  #: returns one value for each round
    unit: str = "×"
    least: bool = True  #: whether the bound is a minimum; else a maximum
    beside_peers: str = ""  #: the scenario, if the row shows the best peer's name

    @property
    def bound_text(self) -> str:
        return f"{'≥' if self.least else '≤'} {_number(self.bound)}{_spaced(self.unit)}"

    def met(self, values: list[float]) -> bool | None:
        """Return whether the median of *values* meets the target; None without values."""
        if not values:
            return None
        return median(values) >= self.bound if self.least else median(values) <= self.bound

    def text(self, values: list[float]) -> str:
        """Return the median of *values* as text, with the minimum and the maximum."""
        if not values:
            return "–"
        middle = f"{_number(median(values))}{_spaced(self.unit)}"
        return middle if len(values) == 1 else f"{middle} ({_number(min(values))}..{_number(max(values))})"


def _spaced(unit: str) -> str:
    return unit if unit == "×" else f" {unit}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 10 else f"{value:.2f}"


def _of_floor(store: Store, scenario: str, figure: str = "rate", floor_figure: str | None = None) -> Compute:
    return lambda cells: ratios(
        cells.values(OURS[store], scenario, figure),
        cells.values(FLOOR[store], scenario, floor_figure or figure),
    )


def _of_peers(store: Store, scenario: str) -> Compute:
    return lambda cells: ratios(cells.values(OURS[store], scenario), cells.best_peer(store, scenario))


def _own(store: Store, over: tuple[str, str], under: tuple[str, str]) -> Compute:
    return lambda cells: ratios(cells.values(OURS[store], *over), cells.values(OURS[store], *under))


def _plain(store: Store, scenario: str, figure: str, scale: float = 1.0) -> Compute:
    return lambda cells: [value * scale for value in cells.values(OURS[store], scenario, figure).values()]


def _targets() -> Iterable[Target]:
    pg: Store = "postgres"
    lite: Store = "sqlite"
    yield Target(pg, "enqueue, one a call", "of the floor", 0.85, _of_floor(pg, "b1", "single"))
    yield Target(pg, "enqueue, 20,000 in one call", "of the floor", 0.6, _of_floor(pg, "b1", "bulk"))
    yield Target(
        pg, "enqueue, 100 callers", "of one caller", 20, _own(pg, ("b1", "callers"), ("b1", "single"))
    )
    yield Target(pg, "drain", "of the floor", 0.55, _of_floor(pg, "b2"))
    yield Target(pg, "drain", "of the best peer", 1.5, _of_peers(pg, "b2"), beside_peers="b2")
    yield Target(pg, "latency, median", "of the floor", 1.3, _of_floor(pg, "b3", "p50"), least=False)
    yield Target(pg, "drain, two workers", "of the floor", 0.5, _of_floor(pg, "b4"))
    yield Target(pg, "drain, every job fails once", "of the floor", 0.4, _of_floor(pg, "b5"))
    yield Target(
        pg, "drain, every job fails once", "of the best peer", 7, _of_peers(pg, "b5"), beside_peers="b5"
    )
    yield Target(
        pg,
        "drain, deep store of future jobs",
        "of its own drain",
        0.9,
        _own(pg, ("b6", "rate"), ("b6", "plain")),
    )
    yield Target(
        pg, "drain beside a snapshot held open", "of the same without", 0.6, _plain(pg, "snapshot", "rate")
    )
    yield Target(pg, "write-ahead log per job", "", 1.9, _plain(pg, "wal", "bytes", 1e-3), "kB", least=False)
    yield Target(pg, "idle worker, CPU", "of one core", 1, _plain(pg, "b7", "cpu"), "%", least=False)
    yield Target(pg, "idle worker, memory", "", 80, _plain(pg, "b7", "rss_mb"), "MB", least=False)
    yield Target(
        lite, "enqueue_sync, one a call", "of the floor", 0.85, _of_floor(lite, "b1", "single_sync", "single")
    )
    yield Target(lite, "await enqueue, one a call", "of the floor", 0.5, _of_floor(lite, "b1", "single"))
    yield Target(lite, "enqueue, 20,000 in one call", "of the floor", 0.4, _of_floor(lite, "b1", "bulk"))
    yield Target(
        lite, "enqueue, 100 callers", "of one caller", 10, _own(lite, ("b1", "callers"), ("b1", "single"))
    )
    yield Target(lite, "drain", "of the floor", 0.4, _of_floor(lite, "b2"))
    yield Target(lite, "drain", "of huey", 8, _of_peers(lite, "b2"))
    yield Target(lite, "latency, median", "of the floor", 1.5, _of_floor(lite, "b3", "p50"), least=False)
    yield Target(lite, "drain, two workers", "of the floor", 0.35, _of_floor(lite, "b4"))
    yield Target(lite, "drain, every job fails once", "of the floor", 0.4, _of_floor(lite, "b5"))
    yield Target(
        lite,
        "drain, deep store of future jobs",
        "of its own drain",
        0.9,
        _own(lite, ("b6", "rate"), ("b6", "plain")),
    )
    yield Target(lite, "idle worker, CPU", "of one core", 1, _plain(lite, "b7", "cpu"), "%", least=False)
    yield Target(lite, "idle worker, memory", "", 80, _plain(lite, "b7", "rss_mb"), "MB", least=False)


TARGETS = tuple(_targets())
MET = {True: "met", False: "missed", None: "not measured"}


def target_rows(results: Results, store: Store) -> list[list[str]]:
    """Return a row for each target: what, compared with what, our figure, the target, the verdict."""
    cells = Cells(results)
    rows = []
    for target in TARGETS:
        if target.store == store:
            values = target.compute(cells)
            names = cells.best_names(store, target.beside_peers) if target.beside_peers else ""
            compare = f"{target.compare} ({names})" if names else target.compare
            rows.append(
                [target.what, compare, target.text(values), target.bound_text, MET[target.met(values)]]
            )
    return rows


TARGET_HEAD = ["what", "compared", "Holdfast", "target", ""]

# --- all subjects

PEER_HEAD = [
    "queue",
    "one a call",
    "bulk",
    "100 callers",
    "drain",
    "of floor",
    "two workers",
    "each fails once",
    "of floor",
    "deep store / drain",
    "latency p50 / p95 / p99 ms",
    "CPU µs per job",
    "WAL B per job",
    "idle CPU %",
    "MB",
]


def peer_rows(results: Results, store: Store) -> list[list[str]]:
    """Return a row of figures for each measured subject."""
    cells = Cells(results)
    return [
        _peer_row(cells, subject.name, store)
        for subject in SUBJECTS
        if subject.store == store and subject.name in cells.subjects()
    ]


def _peer_row(cells: Cells, name: str, store: Store) -> list[str]:
    def rate(scenario: str, figure: str = "rate") -> str:
        return _count(cells.middle(name, scenario, figure))

    def of_floor(scenario: str) -> str:
        return _share(ratios(cells.values(name, scenario), cells.values(FLOOR[store], scenario)))

    late = [cells.middle(name, "b3", figure) for figure in ("p50", "p95", "p99")]
    own, server = cells.middle(name, "b2", "worker_us"), cells.middle(name, "b2", "server_us")
    idle = cells.middle(name, "b7", "cpu")
    return [
        name,
        rate("b1", "single"),
        rate("b1", "bulk"),
        rate("b1", "callers"),
        rate("b2"),
        of_floor("b2"),
        rate("b4"),
        rate("b5"),
        of_floor("b5"),
        _share(ratios(cells.values(name, "b6"), cells.values(name, "b6", "plain"))),
        "–" if None in late else " / ".join(f"{value:.1f}" for value in late if value is not None),
        "–" if own is None else f"{own:.0f} + {server:.0f}" if store == "postgres" else f"{own:.0f}",
        rate("wal", "bytes"),
        "–" if idle is None else f"{idle:.2f}",
        rate("b7", "rss_mb"),
    ]


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _share(values: list[float]) -> str:
    return f"{median(values):.2g}" if values else "–"


def as_text(results: Results) -> str:
    """Return all tables and failures as text for a terminal."""
    parts = []
    for store, name in (("postgres", "PostgreSQL"), ("sqlite", "SQLite")):
        parts += [f"{name}: Holdfast and its targets", _grid([TARGET_HEAD, *target_rows(results, store)]), ""]  # type: ignore[arg-type]
        parts += [f"{name}: all queues", _grid([PEER_HEAD, *peer_rows(results, store)]), ""]  # type: ignore[arg-type]
    return "\n".join([*parts, *failures(results)])


def failures(results: Results) -> list[str]:
    """Return a line for each cell that has no figure."""
    return [
        f"No figure: {cell['subject']}, {cell['scenario']}, round {cell['round']}: {_why(cell)}"
        for cell in results["cells"]
        if "error" in cell or "unfinished" in cell
    ]


def _why(cell: dict[str, Any]) -> str:
    return str(
        cell.get("error")
        or f"{cell['unfinished']} of {cell['n']} jobs were unfinished after {cell['seconds']} s"
    )


def _grid(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
