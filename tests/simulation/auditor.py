"""Reads the event log of the store under test after every write, and holds it against the ledger and the rows."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast.engine.ports import SettlementStatus, Store
from holdfast.jobs.job import DeadLetterFilter, Event, JobFilter, JobId, JobRow, Lease, Settlement
from holdfast.jobs.judgements import outcome_of
from holdfast.jobs.machine import Clock
from holdfast.jobs.moves import FINISHED, State
from holdfast.jobs.verdict import Release
from tests.simulation.diary import Diary
from tests.simulation.ledger import Broken, Life, check_attempts, check_row, demand, expected_answer, step

MANY = 100_000


@contextmanager
def _naming(job_id: JobId) -> Iterator[None]:
    """What breaks here is said of this job."""
    try:
        yield
    except Broken as broken:
        raise Broken(f"{job_id}: {broken}") from None


class Auditor:
    """*store* is the real one, asked directly: what it answers is not subject to any weather."""

    def __init__(self, store: Store, clock: Clock, counts: Counter[str], diary: Diary) -> None:
        self._store, self._clock, self._counts, self._diary = store, clock, counts, diary
        self.lives: dict[JobId, Life] = {}
        self.events: list[Event] = []
        self.keys: dict[JobId, str] = {}  #: of jobs that run one at a time
        self.discarded: set[JobId] = set()
        self.acknowledged: set[JobId] = set()
        self.broken: AssertionError | None = None  #: the first promise that was
        self.over = asyncio.Event()

    def note(self, what: str) -> None:
        self._diary.note_here(what)

    def fail(self, error: AssertionError) -> None:
        self.broken = self.broken or error
        self.over.set()

    # -- around every call ------------------------------------------------------------------------------------------
    async def before(self, name: str, args: tuple[Any, ...]) -> list[SettlementStatus] | None:
        if name != "settle":
            return None
        expected = [await self._expected(settlement) for settlement in args[0]]
        leases = [settlement.lease for settlement in args[0]]
        return [  # what comes twice in one call is repeated the second time
            SettlementStatus.REPEATED
            if right is SettlementStatus.APPLIED and lease in leases[:place]
            else right
            for place, (lease, right) in enumerate(zip(leases, expected, strict=True))
        ]

    async def _expected(self, settlement: Settlement) -> SettlementStatus:
        job_id, epoch = settlement.lease
        life = self.lives.get(job_id)
        passed = False
        if life is not None and life.runs and life.epoch == epoch:
            row = await self._row(job_id)
            passed = row.deadline_at is not None and self._clock.now() > row.deadline_at
        return expected_answer(life, epoch, passed=passed)

    async def after(self, name: str, args: tuple[Any, ...], answer: Any, expected: Any) -> None:
        touched = await self._read_on()
        for job_id in touched:
            row = await self._row(job_id)
            with _naming(job_id):
                check_row(self.lives[job_id], row)
        if name == "settle":
            self._check_answers(args[0], answer, expected)

    def _check_answers(
        self,
        settlements: Sequence[Settlement],
        answers: Sequence[SettlementStatus],
        expected: Sequence[SettlementStatus],
    ) -> None:
        for settlement, answer, right in zip(settlements, answers, expected, strict=True):
            self._counts[f"answer: {answer}"] += 1
            demand(answer is right, f"{settlement.lease} was answered {answer}, not {right} (E4)")
            # Except for what is given back by whoever does not know of its end.
            if answer in (SettlementStatus.APPLIED, SettlementStatus.REPEATED) and not isinstance(
                settlement.verdict, Release
            ):
                how = self.lives[settlement.lease.job_id].ended.get(settlement.lease.epoch)
                said = outcome_of(settlement.verdict)
                demand(how == said, f"{settlement.lease} was told that it {said}, and it ended as {how} (E5)")

    async def _read_on(self) -> dict[JobId, None]:
        """Step the ledger by what is new; whom it concerns."""
        touched: dict[JobId, None] = {}
        last = self.events[-1].id if self.events else 0
        for event in await self._store.queries.events(after=last, limit=MANY):
            self.events.append(event)
            self._diary.event(event)
            self._counts[f"event: {event.kind}"] += 1
            if event.job_id:
                touched[event.job_id] = None
                self._step(event)
        return touched

    def _step(self, event: Event) -> None:
        job_id = event.job_id
        with _naming(job_id):
            self.lives[job_id] = step(self.lives.get(job_id), event)
        if event.kind == "discarded":
            self.discarded.add(job_id)
        elif event.kind in ("manual_retry", "redriven"):
            self.discarded.discard(job_id)
        elif event.kind == "processing":
            self._check_key(job_id)

    def _check_key(self, job_id: JobId) -> None:
        key = self.keys.get(job_id)
        beside = [
            other
            for other, life in self.lives.items()
            if other != job_id and life.runs and key is not None and self.keys.get(other) == key
        ]
        demand(not beside, f"{job_id} and {beside} have one key and run at once (E26)")

    async def _row(self, job_id: JobId) -> JobRow:
        row = await self._store.queries.job(job_id)
        if row is None:
            raise AssertionError(f"{job_id} is gone (E5)")
        return row

    # -- at the end -------------------------------------------------------------------------------------------------
    @property
    def unfinished(self) -> list[JobId]:
        return [job_id for job_id, life in self.lives.items() if life.state not in FINISHED]

    async def close_the_books(self) -> None:
        """Everything that was acknowledged is there, and came to one end, which all the records agree on."""
        await self._read_on()
        rows = {
            row.id: row for row in (await self._store.queries.jobs(JobFilter(), after=None, limit=MANY)).rows
        }
        demand(rows.keys() == self.lives.keys(), "the list of jobs is not that of the events (E60)")
        lost = self.acknowledged - rows.keys()
        demand(not lost, f"acknowledged and lost: {sorted(lost)} (E5)")
        demand(not self.unfinished, f"never came to an end: {self.unfinished} (E5)")
        letters = await self._store.queries.dead_letters(DeadLetterFilter(), after=None, limit=MANY)
        failed = {row.id for row in rows.values() if row.state is State.FAILED}
        demand({letter.id for letter in letters} == failed - self.discarded, "dead letters (E32)")
        for job_id, life in self.lives.items():
            check_row(life, rows[job_id])
            check_attempts(life, await self._store.queries.attempts(job_id))
            late = {kept.epoch for kept in await self._store.queries.late_results(job_id)}
            told = {epoch for kind, epoch in life.noted if kind == "late_result"}
            demand(late == told, f"late results {late}, events {told} (E35)")
            if life.state is State.COMPLETE:
                right = rows[job_id].result == life.epoch
                demand(right, f"{Lease(job_id, life.epoch)} has the result {rows[job_id].result} (E4)")
        demand(await self._store.queries.violations() == [], "the store's own check found something (E3)")

    def log(self) -> bytes:
        """The event log, to be compared byte for byte."""
        lines = [
            json.dumps([e.id, e.at.isoformat(), e.kind, e.job_id, e.epoch, e.attempt, e.meta], sort_keys=True)
            for e in self.events
        ]
        return "\n".join(lines).encode()
