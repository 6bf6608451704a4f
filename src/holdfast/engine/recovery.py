"""What brings jobs on that nobody works on any more: lost leases, stuck attempts, deadlines, and retention. Mixed into the
engine; the duties call it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from holdfast.domain.duration import format_duration
from holdfast.domain.job import Expired
from holdfast.domain.policy import Retry, judge_crash, judge_failure
from holdfast.domain.verdict import Failure, RetryAfter
from holdfast.engine.artifacts import ArtifactStore
from holdfast.engine.observers import Observers
from holdfast.engine.ports import Clock, Reclaim, Retention, Rng, Store
from holdfast.engine.settings import Settings
from holdfast.engine.tasks import STUCK_ACTIONS, Task
from holdfast.errors import StoreUnavailable
from holdfast.logs import Log

log = Log("holdfast.engine")

#: How many rows a duty handles in one statement.
BATCH = 500
#: After this many refusals a sweep leaves the rest to the next one.
MOST_REFUSED = 100


class Recovery:
    store: Store
    tasks: dict[str, Task[Any, Any]]
    settings: Settings
    clock: Clock
    rng: Rng
    observers: Observers
    artifact_store: ArtifactStore
    reclaim_due: float  #: when this process should look for lost leases again
    promoters: list[Callable[[timedelta], None]]

    def expect(self, delay: timedelta) -> None:
        """Something was put back here that will be due in *delay*."""
        for tell in self.promoters:
            tell(delay)

    async def reclaim(self) -> int:
        """Take back every lease that ran out; how many."""
        self.reclaim_due = self.clock.monotonic() + self.settings.reclaim_every.total_seconds()
        total = 0
        while expired := await self.store.expired(BATCH):
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
        """Take back leases that still hold, from attempts that run on for longer than the *limits* of their tasks; how many. *by*
        goes on record."""
        reclaims = [self._judge_stuck(one, limits[one.lane.task])._replace(by=by) for one in stuck]
        done = await self._reclaim_each(reclaims, stuck=True)
        self._put_back(stuck, reclaims, done)
        return done

    def _put_back(self, taken: Sequence[Expired], reclaims: Sequence[Reclaim], done: int) -> None:
        self.observers.reclaimed(list(zip(taken, reclaims, strict=True)), done)
        delays = [one.verdict.delay for one in reclaims if isinstance(one.verdict, RetryAfter)]
        if delays:
            self.expect(min(delays))

    async def _reclaim_each(self, reclaims: Sequence[Reclaim], *, stuck: bool = False) -> int:
        """Together; one by one when something in it is refused (a hook raised), which must not keep the others lost."""
        try:
            return await self.store.reclaim(reclaims, stuck=stuck)
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
            self.tasks[stuck.lane.task].policy.retry,
            attempt=stuck.attempt,
            max_attempts=stuck.max_attempts,
            chance=self.rng.random(),
            now=self.clock.now(),
        )
        return Reclaim(stuck.lease, verdict, crashed=False)

    def stuck_limits(self, *actions: str) -> dict[str, timedelta]:
        """How long an attempt of each task may take before it counts as stuck; of tasks with one of these actions."""
        policies = {name: task.policy for name, task in self.tasks.items()}
        return {
            name: policy.stuck_after
            for name, policy in policies.items()
            if policy.stuck_after is not None and policy.stuck_action in (actions or STUCK_ACTIONS)
        }

    def _judge_expired(self, lost: Expired) -> Reclaim:
        task = self.tasks.get(lost.lane.task)
        policy = task.policy.retry if task else Retry()
        chance = self.rng.random()
        if lost.overran:
            failure = Failure.of("EXECUTION_TIMEOUT", f"worker {lost.worker} did not stop it in time")
            verdict = judge_failure(
                failure,
                policy,
                attempt=lost.attempt,
                max_attempts=lost.max_attempts,
                chance=chance,
                now=self.clock.now(),
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
        return Reclaim(lost.lease, verdict, crashed=not lost.overran)

    async def time_out(self) -> int:
        """Fail everything whose deadline has passed; how many. Together; one by one when something in it is refused (a hook
        raised), which must not keep the others alive."""
        total, refused, together, reason = 0, 0, BATCH, ""
        while refused < MOST_REFUSED:
            try:
                passed = await self.store.time_out(together, skip=refused)
            except StoreUnavailable:
                raise
            except Exception as error:
                refused, together, reason = refused + (together == 1), 1, f"{type(error).__name__}: {error}"
                continue
            if not passed:
                break
            total += len(passed)
            self.observers.timed_out(len(passed))
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
        """Remove what was kept long enough, in small batches; how many rows. Of one *task*, or of all *but* these.

        Artifacts are deleted before the rows that know of them. When that takes more than *patience* seconds, the rest of
        them waits for the next time.
        """
        await self._purge_artifacts(keep, task, but, patience)
        total = 0
        while done := await self.store.purge(task, keep, BATCH, but):
            total += done
        return total

    async def purge_by_policy(self, keep: Retention | None, *, patience: float) -> int:
        """`purge`: the jobs of each task by its own retention, all others by *keep*; how many rows."""
        until = self.clock.monotonic() + patience
        own = {name: task.policy.retention for name, task in self.tasks.items()}
        said = {name: retention for name, retention in own.items() if retention is not None}
        total = 0
        for name, retention in said.items():
            total += await self.purge(retention, name, patience=until - self.clock.monotonic())
        if keep is not None:
            total += await self.purge(keep, but=said, patience=until - self.clock.monotonic())
        return total

    async def _purge_artifacts(
        self, keep: Retention, task: str | None, but: Collection[str], patience: float | None
    ) -> None:
        began = self.clock.monotonic()
        while due := await self.store.artifacts_due(task, keep, BATCH, but):
            spent = self.clock.monotonic() - began
            gone = await self.artifact_store.delete(due, None if patience is None else patience - spent)
            if not gone:
                break
            await self.store.forget_artifacts(gone)


def stuck_failure(stuck: Expired, most: timedelta) -> Failure:
    told = f"attempt {stuck.attempt} ran longer than {format_duration(most)} at worker {stuck.worker}"
    return Failure.of("STUCK", told)
