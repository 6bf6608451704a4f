"""At the end of a torture: is every acknowledged job there, with one end, and how long did those of killed workers wait?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import zip_longest
from typing import Any, NamedTuple

from holdfast.engine.ports import Store
from holdfast.jobs.job import Event, JobFilter, JobId, JobRow
from holdfast.jobs.moves import FINISHED, State
from tests.e2e.faults.world import Site
from tests.simulation.ledger import Broken, Life, check_attempts, check_row, demand, step

PAGE = 1000


class Death(NamedTuple):
    """Of a worker: when, by the clock on the wall and by the one that only goes ahead."""

    pid: int
    at: datetime
    monotonic: float


@dataclass
class Summary:
    """What a run came to. Seconds from the death of a worker until its jobs were *back* in line, and ran *again* elsewhere."""

    store: str
    command: str
    seed: int
    minutes: float
    lease_seconds: float
    cores: int = 0
    load: float = 0.0  #: of the machine, over the last quarter of an hour: what others did there counts too
    acknowledged: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    attempts: int = 0
    blows: dict[str, int] = field(default_factory=dict)
    clicks: int = 0
    clicks_refused: int = 0
    events: dict[str, int] = field(default_factory=dict)
    exits: dict[str, int] = field(default_factory=dict)  #: codes of workers that were told to stop
    ended_by_themselves: dict[str, int] = field(default_factory=dict)  #: … and of those that were not
    back: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)
    messages: int = 0  #: that were to be brought to a broker
    doubles: int = 0  #: that arrived once more
    lost: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    second_ends: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)  #: any other promise

    @property
    def holds(self) -> bool:
        return not (self.lost or self.stuck or self.second_ends or self.broken)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of them lies; 0 when there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


async def audit(site: Site, acknowledged: dict[JobId, int], summary: Summary) -> list[Event]:
    """Hold every row and every record against what the events tell, as the simulation does; the events."""
    store = await site.store()
    rows = {row.id: row async for row in _rows(store)}
    events = await site.all_events()
    summary.acknowledged = len(acknowledged)
    summary.ended = dict(Counter(str(row.state) for row in rows.values()))
    summary.events = dict(sorted(Counter(event.kind for event in events).items()))
    summary.lost = sorted(acknowledged.keys() - rows.keys())
    summary.stuck = sorted(row.id for row in rows.values() if row.state not in FINISHED)
    summary.broken = await store.queries.violations()
    by_job: dict[JobId, list[Event]] = defaultdict(list)
    for event in events:
        by_job[event.job_id].append(event)
    for job_id, row in rows.items():
        try:
            await _check(store, row, by_job[job_id], acknowledged.get(job_id))
        except Broken as broken:
            ends = summary.second_ends if "second end" in str(broken) else summary.broken
            ends.append(f"{job_id}: {broken}")
    return events


async def _rows(store: Store) -> AsyncIterator[JobRow]:
    after: str | None = None
    while True:
        page = await store.queries.jobs(JobFilter(internal=True), after=after, limit=PAGE)
        for row in page.rows:
            yield row
        if page.next is None:
            return
        after = page.next


async def _check(store: Store, row: JobRow, events: Iterable[Event], value: int | None) -> None:
    life: Life | None = None
    for event in events:
        life = step(life, event)
    if life is None:
        raise Broken("it is there, and no event tells of it (E60)")
    check_row(life, row)
    check_attempts(life, await store.queries.attempts(row.id))
    if row.state is State.COMPLETE and value is not None:
        demand(row.result == value, f"its result is {row.result}, not {value} (E4)")


def recoveries(
    site: Site, killed: Iterable[Death], events: Iterable[Event]
) -> tuple[list[float], list[float]]:
    """For each job that was taken from a killed worker: how long until it was back in line, and until it ran again."""
    starts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for start in site.journal("start"):
        starts[start["name"]].append(start)
    died = {death.pid: death for death in killed}
    taken = {(event.job_id, event.epoch): event.at for event in events if event.kind == "reclaimed"}
    back, again = [], []
    for job_id, begun in starts.items():
        for start, after in zip_longest(begun, begun[1:]):
            death, at = died.get(start["pid"]), taken.get((JobId(job_id), start["epoch"]))
            if death is None or at is None or at < death.at:
                continue  # or it was taken from a worker that was frozen, and killed only later
            back.append(round((at - death.at).total_seconds(), 3))
            if after is not None:
                again.append(round(after["at"] - death.monotonic, 3))
    return sorted(back), sorted(again)
