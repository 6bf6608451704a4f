"""Who watches the watchmen: plant a bug in a store, and the stateful test must find it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.domain.job import JobId, Lease
from holdfast.domain.moves import Kind
from holdfast.domain.verdict import Verdict
from holdfast.engine.ports import Answer
from holdfast.stores.memory import MemoryStore, _Job
from holdfast.stores.sqlite import moves
from holdfast.stores.sqlite.moves import SQL, Move
from tests.stateful.benches import memory_benches, sqlite_benches
from tests.stateful.machine import Bench, Machine

Patch = pytest.MonkeyPatch
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

#: Enough to find each of these several times over, and no time spent on making the story short.
EAGER = settings(
    max_examples=1000,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
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
    rewrite(patch, "requeue", "attempt = attempt - (s.value ->> 5)", "attempt = attempt")


def retry_of_a_complete_job(patch: Patch) -> None:
    rewrite(patch, "retry", "phase IN (4, 5)", "phase >= 3")
    patch.setattr(moves, "CANCELLED", moves.COMPLETE)  # what the guard in front of it looks at


def dead_session_comes_back(patch: Patch) -> None:
    rewrite(patch, "extend", " AND expires_mono > :mono", "")


def reclaim_forgets_the_attempt(patch: Patch) -> None:
    """The one that STYLE §11 tells of: the attempt is given back, and the job crashes worker after worker."""
    real = Move._item

    def item(
        self: Move, lease: Lease, verdict: Verdict, outcome: str, crashes: int | None
    ) -> tuple[Any, ...]:
        row = real(self, lease, verdict, outcome, crashes)
        return (*row[:5], 1, *row[6:]) if outcome == "reclaimed" else row

    patch.setattr(Move, "_item", item)


def settle_recorded_twice(patch: Patch) -> None:
    real = MemoryStore._refuse

    def refuse(self: MemoryStore, job: _Job, lease: Lease, verdict: Verdict) -> Answer:
        answer = real(self, job, lease, verdict)
        if answer is Answer.REPEATED:
            self._event(Kind.complete, job)
        return answer

    patch.setattr(MemoryStore, "_refuse", refuse)


def reclaim_without_the_expiry_guard(patch: Patch) -> None:
    """Whoever was on the list is reclaimed, although it has said since that it lives."""
    real = MemoryStore.reclaim

    async def reclaim(self: MemoryStore, reclaims: Any) -> int:
        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(MemoryStore, "_ran_out", lambda self, job: (True, True))
            return await real(self, reclaims)

    patch.setattr(MemoryStore, "reclaim", reclaim)


def cancel_leaves_the_lease(patch: Patch) -> None:
    async def cancel(self: MemoryStore, job_id: JobId, by: str, reason: str) -> None:
        await real(self, job_id, by, reason)
        job = self._jobs[job_id]
        for epoch, attempt in list(job.attempts.items()):
            if attempt.outcome == "cancelled" and epoch == job.epoch:
                del job.attempts[epoch]

    real = MemoryStore.cancel
    patch.setattr(MemoryStore, "cancel", cancel)


def epoch_starts_again(patch: Patch) -> None:
    """A fence that goes back lets an old holder pass for a new one."""
    real = MemoryStore.retry

    async def retry(self: MemoryStore, *args: Any, **more: Any) -> int:
        self._epochs = count(1)
        return await real(self, *args, **more)

    patch.setattr(MemoryStore, "retry", retry)


def deadline_is_late_when_equal(patch: Patch) -> None:
    real = MemoryStore._settle_one

    def settle(
        self: MemoryStore, lease: Lease, verdict: Verdict, duration: timedelta = timedelta()
    ) -> Answer:
        job = self._jobs.get(lease.job_id)
        if job is not None and job.live is not None and job.deadline_at == self._clock.now():
            self._time_out(job)
        return real(self, lease, verdict, duration)

    patch.setattr(MemoryStore, "_settle_one", settle)


def one_key_runs_twice(patch: Patch) -> None:
    patch.setattr(Move, "_busy", lambda self, keys: set())


SQLITE = [
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

    run_state_machine_as_test(Hunter, settings=EAGER)


@pytest.mark.parametrize("plant", SQLITE, ids=lambda plant: plant.__name__)
def test_a_bug_planted_in_sqlite_is_found(
    plant: Callable[[Patch], None], tmp_path: Path, monkeypatch: Patch
) -> None:  # E4 E5 E52
    loop = asyncio.new_event_loop()
    plant(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017 — an assertion of the machine or an error of the store
        hunt(sqlite_benches(loop, tmp_path))
    loop.close()


@pytest.mark.parametrize("plant", MEMORY, ids=lambda plant: plant.__name__)
def test_a_bug_planted_in_memory_is_found(
    plant: Callable[[Patch], None], monkeypatch: Patch
) -> None:  # E4 E5 E52
    loop = asyncio.new_event_loop()
    plant(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017
        hunt(memory_benches(loop))
    loop.close()
