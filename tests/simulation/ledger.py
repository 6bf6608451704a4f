"""The oracle of all nets here: a job as its events tell it, and what must be true of it (E2–E9).

It knows the rules of docs/explanation/reliability.md and no store. It is stepped by the event log alone, so a store that moves a job without saying so, says so
without moving it, or says so twice, disagrees with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from holdfast.engine.ports import SettlementStatus
from holdfast.jobs.job import Attempt, Event, JobRow
from holdfast.jobs.judgements import broken_invariants
from holdfast.jobs.moves import FINISHED, State

#: What is said about an epoch that is over; each at most once, and only of attempts that ended so.
NOTES = {"late_result": ("timed_out", "cancelled"), "stale_write": ("reclaimed",)}
#: The end of an attempt → the state it leads to.
ENDS = {
    "complete": State.COMPLETE,
    "retry": State.QUEUED,
    "failed": State.FAILED,
    "released": State.QUEUED,
    "snoozed": State.QUEUED,
    "reclaimed": State.QUEUED,
    "timed_out": State.FAILED,
    "cancelled": State.CANCELLED,
}
#: Those that may also end a job that nobody runs.
FROM_LINE = ("timed_out", "cancelled")
SILENT = ("discarded", "expired")


class Broken(AssertionError):
    """A promise was broken; the text says which."""


def demand(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


class Life(NamedTuple):
    """One job, as far as its events have told. *ended*: how each epoch that is over came to its end."""

    state: State
    generation: int = 1
    attempt: int = 0
    epoch: int = 0
    ended: Mapping[int, str] = {}
    noted: frozenset[tuple[str, int]] = frozenset()

    @property
    def runs(self) -> bool:
        return self.state is State.PROCESSING


def step(life: Life | None, event: Event) -> Life:
    """The job after *event*; `Broken` when that could not follow."""
    kind = event.kind
    if kind in ("queued", "rejected"):
        demand(life is None, f"a job that was there already is {kind} again (E6)")
        return Life(State.QUEUED if kind == "queued" else State.FAILED)
    if life is None:
        raise Broken(f"{kind} before the job was queued (E60)")
    if kind in NOTES:
        return _note(life, event)
    if kind in SILENT:
        return life
    if kind == "processing":
        demand(life.state is State.QUEUED, f"a {life.state} job was claimed (E2)")
        demand(event.epoch > life.epoch, "the epoch went back (E4)")
        demand(event.attempt == life.attempt + 1, f"attempt {event.attempt} follows {life.attempt} (E2a)")
        return life._replace(state=State.PROCESSING, attempt=event.attempt, epoch=event.epoch)
    if kind in ("manual_retry", "redriven"):
        return _retry(life, kind)
    return _end(life, event)


def _end(life: Life, event: Event) -> Life:
    demand(event.kind in ENDS, f"nobody knows what {event.kind} means")
    demand(
        life.state not in FINISHED,
        f"{event.kind} of a job that is {life.state}: a second end in one generation (E5)",
    )
    state = ENDS[event.kind]
    if not life.runs:
        demand(event.kind in FROM_LINE, f"{event.kind} of a job that nobody runs (E2)")
        return life._replace(state=state)
    demand(event.epoch == life.epoch, f"{event.kind} under epoch {event.epoch}, not {life.epoch} (E4)")
    demand(event.attempt == life.attempt, f"{event.kind} of attempt {event.attempt}, not {life.attempt} (E8)")
    # A worker tells how long it took; whoever buries a job for a worker that was lost cannot.
    lost = event.kind == "failed" and "duration_ms" not in event.meta
    ended = {**life.ended, life.epoch: "reclaimed" if lost else event.kind}
    given_back = event.kind in ("released", "snoozed")
    return life._replace(state=state, attempt=life.attempt - given_back, ended=ended)


def _retry(life: Life, kind: str) -> Life:
    demand(life.state is not State.COMPLETE, f"{kind} of a complete job (E33)")
    demand(not life.runs, f"{kind} of a running job (E33)")
    if life.state in FINISHED:
        return life._replace(state=State.QUEUED, generation=life.generation + 1, attempt=0)
    return life


def _note(life: Life, event: Event) -> Life:
    how = life.ended.get(event.epoch)
    demand(how in NOTES[event.kind], f"{event.kind} of an attempt that ended as {how} (E2a)")
    note = (event.kind, event.epoch)
    demand(note not in life.noted, f"{event.kind} of epoch {event.epoch} told twice (E6)")
    return life._replace(noted=life.noted | {note})


def expected_answer(life: Life | None, epoch: int, *, passed: bool) -> SettlementStatus:
    """What a settlement under *epoch* must be told. *passed*: the deadline is over."""
    if life is None:
        return SettlementStatus.STALE
    if life.runs and epoch == life.epoch:
        return SettlementStatus.LATE if passed else SettlementStatus.APPLIED
    match life.ended.get(epoch):
        case None | "reclaimed":
            return SettlementStatus.STALE
        case "timed_out" | "cancelled":
            return SettlementStatus.LATE
    return SettlementStatus.REPEATED


def check_row(life: Life, row: JobRow) -> None:
    """The row people see says what the events told, and breaks no rule of E3."""
    for fact in ("state", "generation", "attempt", "epoch"):
        told, seen = getattr(life, fact), getattr(row, fact)
        if told != seen:
            raise Broken(f"the events tell {fact} {told}, the row says {seen} (E60)")
    for rule in broken_invariants(row):
        raise Broken(f"the job {rule} (E3)")


def check_attempts(life: Life, attempts: Iterable[Attempt]) -> None:
    """One record for each dispatch, which says how it ended (E8)."""
    told = dict(life.ended) | ({life.epoch: None} if life.runs else {})
    seen: dict[int, str | None] = {}
    for attempt in attempts:
        demand(attempt.epoch not in seen, f"two records of epoch {attempt.epoch} (E8)")
        seen[attempt.epoch] = attempt.outcome
    if told != seen:
        raise Broken(f"the events tell of attempts {told}, their records of {seen} (E8)")
