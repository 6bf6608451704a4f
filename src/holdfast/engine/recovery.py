"""Recover jobs that no worker runs any more, and remove what was kept long enough. Workers and maintenance call this."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.engine.ports import Reclaim
from holdfast.errors import StoreUnavailable
from holdfast.jobs.job import ORDINARY_COST, Expired
from holdfast.jobs.retention import Retention
from holdfast.jobs.verdict import Failure, RetryAfter
from holdfast.logging import Log
from holdfast.resilience.policy import Retry, judge_crash, judge_failure
from holdfast.tasks.task import STUCK_ACTIONS
from holdfast.values.duration import format_duration

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine

log = Log("holdfast.engine")

#: How many rows one statement of maintenance handles.
BATCH = 500
#: After this many refusals a sweep leaves the rest to the next one.
MOST_REFUSED = 100


class Recovery:
    """Reclaim lost and stuck attempts, enforce deadlines, apply retention: on one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.reclaim_due = (
            -math.inf
        )  #: when this process should look for lost leases again, on its monotonic clock
        #: Called with the delay of each job that was put back here, so that promotion looks again in time.
        self.promoters: list[Callable[[timedelta], None]] = []

    def expect(self, delay: timedelta) -> None:
        """Tell promotion that a job was put back here and is due in *delay*."""
        for tell in self.promoters:
            tell(delay)

    async def reclaim(self) -> int:
        """Reclaim every lease that ran out, and return how many."""
        self.reclaim_due = (
            self._engine.clock.monotonic() + self._engine.settings.reclaim_every.total_seconds()
        )
        total = 0
        while expired := await self._engine.store.expired(BATCH):
            reclaims = [self._judge_expired(lost) for lost in expired]
            done = await self._reclaim_each(reclaims)
            self._put_back(expired, reclaims, done)
            total += done
            if done == 0 or len(expired) < BATCH:
                break
        return total

    async def reclaim_stuck(
        self, stuck: Sequence[Expired], limits: Mapping[str, timedelta], *, by: str = ""
    ) -> int:
        """Reclaim leases that still hold from attempts that run longer than the *limits* of their tasks.

        Return how many were reclaimed. The event records *by*.
        """
        reclaims = [self._judge_stuck(one, limits[one.lane.task])._replace(by=by) for one in stuck]
        done = await self._reclaim_each(reclaims, stuck=True)
        self._put_back(stuck, reclaims, done)
        return done

    def _put_back(self, taken: Sequence[Expired], reclaims: Sequence[Reclaim], done: int) -> None:
        self._engine.observers.reclaimed(list(zip(taken, reclaims, strict=True)), done)
        delays = [one.verdict.delay for one in reclaims if isinstance(one.verdict, RetryAfter)]
        if delays:
            self.expect(min(delays))

    async def _reclaim_each(self, reclaims: Sequence[Reclaim], *, stuck: bool = False) -> int:
        """Reclaim together, or one by one when a hook raises, so that one refusal does not keep the others lost."""
        try:
            return await self._engine.store.reclaim(reclaims, stuck=stuck)
        except StoreUnavailable:
            raise
        except Exception as error:
            if len(reclaims) == 1:
                reason = f"{type(error).__name__}: {error}"
                log.warning("reclaim.refused", job_id=reclaims[0].lease.job_id, reason=reason)
                return 0
        return sum([await self._reclaim_each([one], stuck=stuck) for one in reclaims])

    def _judge_stuck(self, stuck: Expired, most: timedelta) -> Reclaim:
        verdict = judge_failure(
            stuck_failure(stuck, most),
            self._engine.tasks[stuck.lane.task].policy.retry,
            attempt=stuck.attempt,
            max_attempts=stuck.max_attempts,
            chance=self._engine.rng.random(),
            now=self._engine.clock.now(),
        )
        return Reclaim(stuck.lease, verdict, crashed=False, cost=self._cost_of(stuck))

    def stuck_limits(self, *actions: str) -> dict[str, timedelta]:
        """Return how long an attempt of each task may take before it counts as stuck, of tasks with one of these *actions*."""
        policies = {name: task.policy for name, task in self._engine.tasks.items()}
        return {
            name: policy.stuck_after
            for name, policy in policies.items()
            if policy.stuck_after is not None and policy.stuck_action in (actions or STUCK_ACTIONS)
        }

    def _judge_expired(self, lost: Expired) -> Reclaim:
        task = self._engine.tasks.get(lost.lane.task)
        policy = task.policy.retry if task else Retry()
        chance = self._engine.rng.random()
        if lost.overran:
            failure = Failure.of("EXECUTION_TIMEOUT", f"worker {lost.worker} did not stop it in time")
            verdict = judge_failure(
                failure,
                policy,
                attempt=lost.attempt,
                max_attempts=lost.max_attempts,
                chance=chance,
                now=self._engine.clock.now(),
            )
        else:
            verdict = judge_crash(
                attempt=lost.attempt,
                max_attempts=lost.max_attempts,
                crashes=lost.crashes + 1,
                max_crashes=lost.max_crashes,
                backoff=policy.backoff,
                chance=chance,
                lost=Failure.of("WORKER_LOST", f"worker {lost.worker} was lost in attempt {lost.attempt}"),
            )
        return Reclaim(lost.lease, verdict, crashed=not lost.overran, cost=self._cost_of(lost))

    def _cost_of(self, lost: Expired) -> float:
        """Return what the attempt cost, as far as it is known without its worker."""
        task = self._engine.tasks.get(lost.lane.task)
        return ORDINARY_COST if task is None else task.policy.cost

    async def time_out(self) -> int:
        """Fail every job whose deadline has passed, and return how many.

        They fail together, or one by one when a hook raises, so that one refusal does not keep the others alive.
        """
        total, refused, together, reason = 0, 0, BATCH, ""
        while refused < MOST_REFUSED:
            try:
                passed = await self._engine.store.time_out(together, skip=refused)
            except StoreUnavailable:
                raise
            except Exception as error:
                refused, together, reason = refused + (together == 1), 1, f"{type(error).__name__}: {error}"
                continue
            if not passed:
                break
            total += len(passed)
            self._engine.observers.timed_out(len(passed))
        if refused:
            log.warning("deadline.not_enforced", jobs=refused, reason=reason)
        return total

    async def purge(
        self,
        keep: Retention,
        task: str | None = None,
        *,
        but: Collection[str] = (),
        patience: float | None = None,
    ) -> int:
        """Remove what was kept long enough, in small batches, and return how many rows were removed.

        Of one *task*, or of all *but* these. Artifacts are deleted before the rows that name them. When that takes more
        than *patience* seconds, the rest is left for the next call.
        """
        await self._purge_artifacts(keep, task, but, patience)
        total = 0
        while done := await self._engine.store.purge(task, keep, BATCH, but):
            total += done
        return total

    async def purge_by_policy(self, keep: Retention | None, *, patience: float) -> int:
        """Purge the jobs of each task by its own retention and all others by *keep*, and return how many rows were removed."""
        until = self._engine.clock.monotonic() + patience
        own = {name: task.policy.retention for name, task in self._engine.tasks.items()}
        said = {name: retention for name, retention in own.items() if retention is not None}
        total = 0
        for name, retention in said.items():
            total += await self.purge(retention, name, patience=until - self._engine.clock.monotonic())
        if keep is not None:
            total += await self.purge(keep, but=said, patience=until - self._engine.clock.monotonic())
        return total

    async def _purge_artifacts(
        self, keep: Retention, task: str | None, but: Collection[str], patience: float | None
    ) -> None:
        began = self._engine.clock.monotonic()
        while due := await self._engine.store.artifacts_due(task, keep, BATCH, but):
            spent = self._engine.clock.monotonic() - began
            gone = await self._engine.artifact_store.delete(
                due, None if patience is None else patience - spent
            )
            if not gone:
                break
            await self._engine.store.forget_artifacts(gone)


def stuck_failure(stuck: Expired, most: timedelta) -> Failure:
    reason = f"attempt {stuck.attempt} ran longer than {format_duration(most)} at worker {stuck.worker}"
    return Failure.of("STUCK", reason)
