"""Who watches the watchmen: plant a bug in a store, and the stateful test must find it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.engine.ports import SettlementStatus
from holdfast.errors import HoldfastError
from holdfast.jobs.job import JobId, Settlement
from holdfast.jobs.moves import MOVES, Kind
from holdfast.jobs.verdict import Verdict
from holdfast.stores.memory import manual as memory_people
from holdfast.stores.memory import outcomes as memory_settling
from holdfast.stores.memory import recovery as memory_recovering
from holdfast.stores.memory.tables import Job, Tables
from holdfast.stores.sqlite import claims, outcomes, phases
from holdfast.stores.sqlite.move import SQL
from tests.stateful.benches import memory_benches, sqlite_benches
from tests.stateful.machine import Bench, Machine

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(120)

#: Of the few that were tried each finds all of them, some after many examples; this one soon.
SEED = 8
#: Enough to find each of these several times over, and no time spent on making the story short.
EAGER = settings(
    max_examples=1000,
    stateful_step_count=50,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    print_blob=False,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def rewrite(patch: Patch, name: str, old: str, new: str) -> None:
    """Change one statement of the SQLite store; the words to change must be there."""
    assert old in SQL[name]
    patch.setitem(SQL, name, SQL[name].replace(old, new))


def epoch_guard_dropped(patch: Patch) -> None:
    rewrite(patch, "complete", " AND job.epoch = s.value ->> 1", "")


def late_result_applied(patch: Patch) -> None:
    rewrite(patch, "complete", "AND (job.deadline_at IS NULL OR job.deadline_at >= :now)", "")


def release_burns_an_attempt(patch: Patch) -> None:
    rewrite(patch, "requeue.release", "attempt = attempt - :back", "attempt = attempt")


def retry_of_a_complete_job(patch: Patch) -> None:
    rewrite(patch, "retry", f" AND {phases.in_states('phase', MOVES['retry'][0])}", "")


def dead_session_comes_back(patch: Patch) -> None:
    rewrite(patch, "extend", " AND expires_mono > :mono", "")


def reclaim_forgets_the_attempt(patch: Patch) -> None:
    """The one that STYLE §11 tells of: the attempt is given back, and the job crashes worker after worker."""
    real = outcomes.requeue_columns

    def requeue_columns(verdict: Verdict, outcome: str, crashes: int | None) -> outcomes.RequeueColumns:
        columns = real(verdict, outcome, crashes)
        return columns._replace(back=1) if outcome == "reclaimed" else columns

    patch.setattr(outcomes, "requeue_columns", requeue_columns)


def settle_recorded_twice(patch: Patch) -> None:
    real = memory_settling.refuse

    def refuse(tables: Tables, job: Job, settlement: Settlement) -> SettlementStatus:
        answer = real(tables, job, settlement)
        if answer is SettlementStatus.REPEATED:
            tables.record(Kind.complete, job)
        return answer

    patch.setattr(memory_settling, "refuse", refuse)


def reclaim_without_the_expiry_guard(patch: Patch) -> None:
    """Whoever was on the list is reclaimed, although it has said since that it lives."""
    real = memory_recovering.reclaim

    def reclaim(tables: Tables, reclaims: Any, stuck: bool = False) -> int:
        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(memory_recovering, "ran_out", lambda tables, job: (True, True))
            return real(tables, reclaims)

    patch.setattr(memory_recovering, "reclaim", reclaim)


def cancel_leaves_the_lease(patch: Patch) -> None:
    real = memory_people.cancel

    def cancel(tables: Tables, job_id: JobId, *args: Any) -> None:
        real(tables, job_id, *args)
        job = tables.jobs[job_id]
        for epoch, attempt in list(job.attempts.items()):
            if attempt.outcome == "cancelled" and epoch == job.epoch:
                del job.attempts[epoch]

    patch.setattr(memory_people, "cancel", cancel)


def epoch_starts_again(patch: Patch) -> None:
    """A fence that goes back lets an old holder pass for a new one."""
    real = memory_people.retry

    def retry(tables: Tables, job_id: JobId, by: str, **options: Any) -> int:
        tables.epochs = count(1)
        return real(tables, job_id, by, **options)

    patch.setattr(memory_people, "retry", retry)


def deadline_is_late_when_equal(patch: Patch) -> None:
    real = memory_settling.settle

    def settle(tables: Tables, settlement: Settlement) -> SettlementStatus:
        job = tables.jobs.get(settlement.lease.job_id)
        if job is not None and job.live is not None and job.deadline_at == tables.clock.now():
            memory_settling.time_out_one(tables, job)
        return real(tables, settlement)

    patch.setattr(memory_settling, "settle", settle)


def one_key_runs_twice(patch: Patch) -> None:
    patch.setattr(claims, "_running_of", lambda move, keys: {})


def a_pause_ends_a_little_early(patch: Patch) -> None:
    """Only holds without an end hold."""
    rewrite(patch, "holding", "h.until IS NULL OR h.until > ?2", "h.until IS NULL OR h.until > ?2 + 15000000")


SQLITE = [
    a_pause_ends_a_little_early,
    epoch_guard_dropped,
    late_result_applied,
    release_burns_an_attempt,
    retry_of_a_complete_job,
    dead_session_comes_back,
    reclaim_forgets_the_attempt,
    one_key_runs_twice,
]
MEMORY = [
    settle_recorded_twice,
    reclaim_without_the_expiry_guard,
    cancel_leaves_the_lease,
    epoch_starts_again,
    deadline_is_late_when_equal,
]


def hunt(make: Callable[[], Bench]) -> None:
    class Hunter(Machine):
        make_bench = staticmethod(make)

    run_state_machine_as_test(seed(SEED)(Hunter), settings=EAGER)


@pytest.mark.parametrize("plant", SQLITE, ids=lambda plant: plant.__name__)
def test_a_bug_planted_in_sqlite_is_found(
    plant: Callable[[Patch], None], tmp_path: Path, monkeypatch: Patch
) -> None:  # E4 E5 E52
    loop = asyncio.new_event_loop()
    plant(monkeypatch)
    with pytest.raises((AssertionError, HoldfastError, sqlite3.Error)):
        hunt(sqlite_benches(loop, tmp_path))
    loop.close()


@pytest.mark.parametrize("plant", MEMORY, ids=lambda plant: plant.__name__)
def test_a_bug_planted_in_memory_is_found(
    plant: Callable[[Patch], None], monkeypatch: Patch
) -> None:  # E4 E5 E52
    loop = asyncio.new_event_loop()
    plant(monkeypatch)
    with pytest.raises((AssertionError, HoldfastError)):
        hunt(memory_benches(loop))
    loop.close()
