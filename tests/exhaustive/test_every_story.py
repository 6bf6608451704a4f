"""Every order in which workers, reapers, people, the clock and a deadline can act on one job (E2–E9).

Nothing is left to chance here: each scenario is walked to its last state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.engine.ports import SettlementStatus
from holdfast.jobs.job import JobId, Settlement
from holdfast.jobs.moves import Kind, State
from holdfast.stores.memory import manual, outcomes, recovery
from holdfast.stores.memory.tables import Job, Tables
from tests.exhaustive.search import Story, explore
from tests.exhaustive.world import Scenario

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(180)

#: Name → who takes part, and what must have come of some step, or the walk has missed its subject.
SCENARIOS: dict[str, tuple[Scenario, set[str]]] = {
    "a worker crashes": (
        Scenario(clicks=0, cancels=0, crashes=1),
        {"crashed", "reclaimed", "stale", "again repeated", "stale_write"},
    ),
    "a person cancels, and one retries": (
        Scenario(clicks=1, cancels=1, crashes=0),
        {"cancelled", "retried", "conflict", "late", "again late", "late_result", "manual_retry"},
    ),
    "two people retry": (
        Scenario(clicks=2, cancels=0, crashes=0, max_attempts=1),
        {"retried", "conflict", "reclaimed", "stale"},
    ),
    "the deadline passes": (
        Scenario(deadline=100.0, clicks=0, cancels=0, crashes=1),
        {"timed_out", "late", "again late", "late_result", "crashed"},
    ),
    "three workers": (
        Scenario(workers=3, clicks=0, cancels=0, crashes=0, max_attempts=3),
        {"reclaimed", "stale", "released", "retry", "failed"},
    ),
    "two reapers": (
        Scenario(reapers=2, clicks=0, cancels=0, crashes=0),
        {"found", "reclaimed", "refused", "extended"},
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_order_of_steps_breaks_a_promise(name: str) -> None:  # E2 E2a E3 E4 E5 E6 E8 E9 E29 E30 E33 E34
    scenario, wanted = SCENARIOS[name]
    done = explore(scenario)
    assert wanted <= done.came.keys()
    assert done.states > 400


# -- who watches the watchmen ---------------------------------------------------------------------------------------------
def reclaim_without_guard(patch: Patch) -> None:
    """A job is queued again although it has ended since."""
    real = recovery.reclaim

    def reclaim(tables: Tables, reclaims: Any, stuck: bool = False) -> int:
        for one in reclaims:
            job = tables.jobs[one.lease.job_id]
            if job.live is None and job.state is State.COMPLETE:
                outcomes.requeue(tables, job, tables.clock.now(), Kind.reclaimed)
                return 1
        return real(tables, reclaims, stuck)

    patch.setattr(recovery, "reclaim", reclaim)


def fence_dropped(patch: Patch) -> None:
    """Whoever holds any lease of a running job may end it."""
    patch.setattr(Job, "holds", lambda job, lease: job.live is not None)


def retry_of_a_complete_job(patch: Patch) -> None:
    real = manual.retry

    def retry(tables: Tables, job_id: JobId, by: str, **options: Any) -> int:
        job = tables.jobs[job_id]
        if job.state is State.COMPLETE:
            job.state = State.FAILED
        return real(tables, job_id, by, **options)

    patch.setattr(manual, "retry", retry)


def told_twice(patch: Patch) -> None:
    """An answer that was lost makes a second event."""
    real = outcomes.refuse

    def refuse(tables: Tables, job: Job, settlement: Settlement) -> SettlementStatus:
        answer = real(tables, job, settlement)
        if answer is SettlementStatus.REPEATED and job.state is State.COMPLETE:
            tables.record(Kind.complete, job)
        return answer

    patch.setattr(outcomes, "refuse", refuse)


def late_result_applied(patch: Patch) -> None:
    real = outcomes.settle

    def settle(tables: Tables, settlement: Settlement) -> SettlementStatus:
        job = tables.jobs[settlement.lease.job_id]
        deadline_at, job.deadline_at = job.deadline_at, None
        try:
            return real(tables, settlement)
        finally:
            job.deadline_at = deadline_at

    patch.setattr(outcomes, "settle", settle)


BUGS: dict[Callable[[Patch], None], tuple[str, int]] = {
    reclaim_without_guard: ("a worker crashes", 6),
    fence_dropped: ("a worker crashes", 8),
    retry_of_a_complete_job: ("two people retry", 3),
    told_twice: ("a worker crashes", 3),
    late_result_applied: ("the deadline passes", 5),
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found_with_its_shortest_story(
    plant: Callable[[Patch], None], monkeypatch: Patch
) -> None:  # E4 E5 E6
    name, most = BUGS[plant]
    plant(monkeypatch)
    with pytest.raises(Story) as found:
        explore(SCENARIOS[name][0])
    assert len(found.value.names) <= most, str(found.value)


def test_a_story_reads_like_one(monkeypatch: Patch) -> None:
    reclaim_without_guard(monkeypatch)
    with pytest.raises(Story) as found:
        explore(SCENARIOS["a worker crashes"][0])
    assert str(found.value).splitlines() == [
        "broken after 6 steps: a lease was reclaimed that had not run out, or was not current (E30)",
        "  1. worker 1 claims",
        "  2. 40 s pass",
        "  3. 40 s pass",
        "  4. reaper 1 looks for lost leases",
        "  5. worker 1 completes",
        "  6. reaper 1 reclaims what it had read",
    ]
