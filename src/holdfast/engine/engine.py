"""The verbs: what can be done with jobs, whatever store they are in and whoever asks."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any

from holdfast.domain.classify import classify
from holdfast.domain.duration import Duration, optional, spell
from holdfast.domain.job import (
    Artefact,
    Attempt,
    Claimed,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    Edit,
    Enqueued,
    Event,
    Expired,
    JobFilter,
    JobId,
    JobRow,
    LateResult,
    NewJob,
    WorkerRow,
    named,
)
from holdfast.domain.knobs import number, whole, word
from holdfast.domain.moves import FINISHED, NOTES, Kind
from holdfast.domain.outbox import NewMessage
from holdfast.domain.policy import Retry, judge_crash, judge_failure
from holdfast.domain.proviso import ANYHOW, Proviso
from holdfast.domain.verdict import Bury, Failure, RetryAfter, Verdict
from holdfast.engine.admission import Admission
from holdfast.engine.artefacts import Keeper
from holdfast.engine.broker import Broker
from holdfast.engine.calling import Calls
from holdfast.engine.coalesce import Coalescer
from holdfast.engine.doorstore import Repeated, Request
from holdfast.engine.explaining import Explaining
from holdfast.engine.observing import Observers
from holdfast.engine.outside import Outside
from holdfast.engine.payload import decode_any, encode, size
from holdfast.engine.ports import (
    Artefacts,
    Clock,
    EnqueuesInTransaction,
    Ids,
    Page,
    Reclaim,
    Retention,
    Rng,
    Store,
    Stuck,
)
from holdfast.engine.presentable import presentable
from holdfast.engine.publishing import Publishing
from holdfast.engine.settings import Settings
from holdfast.engine.steering import Steering
from holdfast.engine.tasks import STUCK_ACTIONS, Task
from holdfast.errors import (
    Changed,
    Conflict,
    InsufficientCredits,
    QuotaExceeded,
    ResultExpired,
    StoreUnavailable,
    UnknownJob,
    UsageError,
)
from holdfast.logs import Log

log = Log("holdfast.engine")

#: How many rows a duty handles in one statement.
BATCH = 500
#: After so many refusals a sweep leaves the rest to the next one.
MOST_REFUSED = 100
#: How many jobs one page may hold, and how many rows of another kind one look may ask for.
MOST_JOBS, MOST_ROWS = 10_000, 1_000_000
#: In bytes, of what is said with a note; and the words that mean something in every event.
LONGEST_NOTE = 4_000
TAKEN = frozenset({"attempt", "epoch", "job", "kind", "name", "token"})


class Engine(Steering, Explaining, Outside, Publishing):
    """One store, the tasks known here, and the clock, chance and ids that everything is decided with."""

    def __init__(
        self,
        store: Store,
        tasks: dict[str, Task[Any, Any]],
        settings: Settings,
        clock: Clock,
        rng: Rng,
        ids: Ids,
        artefacts: Artefacts | None = None,
        admission: Admission | None = None,
        observers: Observers | None = None,
        calls: Callable[[], Calls] | None = None,
        broker: Broker | None = None,
    ) -> None:
        self.store, self.tasks, self.settings = store, tasks, settings
        self.clock, self.rng, self.ids = clock, rng, ids
        self.admission = admission or Admission()
        self.observers = observers or Observers()
        self.keeper = Keeper(store, artefacts, settings.result_limit)
        self._enqueues: Coalescer[NewJob, Enqueued] = Coalescer(self._enqueue)
        self._publishes: Coalescer[NewMessage, None] = Coalescer(self._publish)
        self.reclaim_due = -math.inf  #: when this process should look for lost leases again
        #: Those who let jobs into line: each is told how soon something will be due that was put back here.
        self.promoters: list[Callable[[timedelta], None]] = []
        #: What the duties of this process say of themselves, a line each.
        self.health_lines: list[Callable[[], list[str]]] = []
        self._make_calls = calls
        self.broker = broker  #: told of jobs that wait, where workers get them from there

    @cached_property
    def outbound(self) -> Calls:
        """The client for URLs that users gave; made when it is first asked for."""
        if self._make_calls is None:
            raise UsageError("this engine calls nobody")
        return self._make_calls()

    # -- queueing ---------------------------------------------------------------------------------------------------
    async def enqueue(self, jobs: Sequence[NewJob], connection: Any = None) -> Sequence[Enqueued]:
        """Store jobs; answered after the commit (the caller's own commit, where a *connection* is given)."""
        if connection is not None:
            answers = await self._in_transaction().enqueue_in(connection, jobs)
            self.observers.enqueued(jobs, answers)
            return answers
        if len(jobs) == 1:
            return [await self._enqueues.do(jobs[0])]
        return await self._enqueue(jobs) if jobs else []

    async def _enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        answers = await self.store.enqueue(jobs)
        self._stored(jobs, answers)
        return answers

    def _stored(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        self.observers.enqueued(jobs, answers)
        if self.broker is not None:
            self.broker.enqueued(jobs, answers)

    def _moved(self, job_id: JobId) -> None:
        if self.broker is not None:
            self.broker.moved(job_id)

    async def enqueue_once(
        self, request: Request, jobs: Sequence[NewJob], *, keep: timedelta
    ) -> Sequence[Enqueued] | Repeated:
        """`enqueue`, unless a request of this name was answered before."""
        found = await self.store.enqueue_once(request, jobs, keep=keep)
        if not isinstance(found, Repeated):
            self._stored(jobs, found)
        return found

    def enqueue_sync(self, jobs: Sequence[NewJob], connection: Any) -> Sequence[Enqueued]:
        answers = self._in_transaction().enqueue_in_sync(connection, jobs)
        self.observers.enqueued(jobs, answers)
        return answers

    def _in_transaction(self) -> EnqueuesInTransaction:
        if not isinstance(self.store, EnqueuesInTransaction):
            raise UsageError("this store cannot enqueue inside your transaction; use SQLite or PostgreSQL")
        return self.store

    async def reject(self, job: NewJob, code: str, message: str | None = None) -> JobId:
        """Put a refused input on record as failed, without a dead letter."""
        failure = Failure.of(code)
        if message is not None:
            failure = Failure(code, message, failure.error_class)
        await self.store.reject(job, failure)
        self.observers.rejected(job, failure)
        return job.id

    # -- judging ----------------------------------------------------------------------------------------------------
    def judge(self, claimed: Claimed, error: BaseException, elapsed: timedelta) -> Verdict:
        """What becomes of a job whose attempt raised *error* after *elapsed*."""
        return self.judge_failure(claimed, self.failure_of(error, claimed.lane.task), elapsed)

    def failure_of(self, error: BaseException, task: str) -> Failure:
        """What an exception of this task's handler means."""
        policy = self.tasks[task].policy
        return classify(error, task=task, policy=policy.retry, rules=policy.rules, now=self.clock.now())

    def judge_failure(self, claimed: Claimed, failure: Failure, elapsed: timedelta) -> Verdict:
        left = claimed.until_deadline
        return judge_failure(
            presentable(failure),
            self.tasks[claimed.lane.task].policy.retry,
            attempt=claimed.attempt,
            max_attempts=claimed.max_attempts,
            chance=self.rng.random(),
            elapsed=claimed.waited + elapsed,
            until_deadline=None if left is None else left - elapsed,
            now=self.clock.now(),
        )

    def expect(self, delay: timedelta) -> None:
        """Something was put back here that will be due in *delay*."""
        for tell in self.promoters:
            tell(delay)

    # -- recovering -------------------------------------------------------------------------------------------------
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
            _stuck_failure(stuck, most),
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
            log.warning("deadlines.refused", jobs=refused, reason=reason)
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

        Artefacts are deleted before the rows that know of them. When that takes more than *patience* seconds, the rest of
        them waits for the next time.
        """
        await self._purge_artefacts(keep, task, but, patience)
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

    async def _purge_artefacts(
        self, keep: Retention, task: str | None, but: Collection[str], patience: float | None
    ) -> None:
        began = self.clock.monotonic()
        while due := await self.store.artefacts_due(task, keep, BATCH, but):
            spent = self.clock.monotonic() - began
            gone = await self.keeper.delete(due, None if patience is None else patience - spent)
            if not gone:
                break
            await self.store.forget_artefacts(gone)

    # -- people's moves ---------------------------------------------------------------------------------------------
    async def cancel(
        self, job_id: str, *, by: str = "api", reason: str = "", proviso: Proviso = ANYHOW
    ) -> None:
        """Queued or processing → cancelled. A running attempt is told to stop."""
        known = named(job_id)
        await self.store.cancel(known, by, reason, proviso=proviso)
        self._moved(known)

    async def retry(
        self,
        job_id: str,
        *,
        by: str = "api",
        owner: str | None = None,
        from_step: str | None = None,
        args: Mapping[str, Any] | None = None,
        proviso: Proviso = ANYHOW,
    ) -> int:
        """Run a failed, cancelled, waiting or stuck job now; its place in line. Else `Conflict`.

        *owner* refuses another's job. *from_step* forgets that step and every one recorded after it. *args* are what it is
        called with instead; its steps, recorded for another call, are forgotten. *proviso*: only if.
        """
        known = named(job_id)
        if owner is not None:
            row = await self.job(known)
            if row.owner != owner:
                raise Conflict(f"job {job_id} belongs to another owner")
        forget: Collection[str] | None = None
        if from_step is not None:
            forget = await self._steps_from(known, from_step)
        elif args is not None:
            forget = list(await self.store.steps(known))
        edit = None if args is None else await self._edit(known, args)
        place = await self._retry(known, by, forget, edit, proviso)
        self.observers.retried(Kind.manual_retry)
        self._moved(known)
        return place

    async def _retry(
        self, job_id: JobId, by: str, forget: Collection[str] | None, edit: Edit | None, proviso: Proviso
    ) -> int:
        """In one move, also where it is to be taken from a worker that lives: of two who ask, one is refused."""

        async def retry(stuck: Stuck | None) -> int:
            return await self.store.retry(
                job_id, by, kind=Kind.manual_retry, forget=forget, edit=edit, proviso=proviso, stuck=stuck
            )

        try:
            return await retry(None)
        except Changed:
            raise
        except Conflict:
            limits = self.stuck_limits()
            found = await self.store.stuck(limits, 1, ids=[job_id]) if limits else []
            if not found:
                raise
        [attempt] = found
        failure = _stuck_failure(attempt, limits[attempt.lane.task])
        place = await retry(Stuck(attempt.lease, failure))
        is_last = attempt.attempt >= attempt.max_attempts
        verdict = Bury(failure) if is_last else RetryAfter(timedelta(), failure)
        self.observers.reclaimed([(attempt, Reclaim(attempt.lease, verdict, crashed=False))], 1)
        return place

    async def _edit(self, job_id: JobId, args: Mapping[str, Any]) -> Edit:
        """Another call of its task, checked as `enqueue` does."""
        row = await self.job(job_id)
        task = self.tasks.get(row.task)
        if task is None or row.task.startswith("holdfast."):
            raise UsageError(
                f"task {row.task!r} is not one of this app, so other arguments cannot be checked; retry it as it is, or in its app"
            )
        payload = task.signature.dump(task.signature.bind((), args), self.settings.payload_limit)
        before, after = row.payload if isinstance(row.payload, dict) else {}, decode_any(payload)
        names = sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
        return Edit(payload, task.policy.version, tuple(names))

    async def _steps_from(self, job_id: JobId, name: str) -> Collection[str]:
        names = list(await self.store.steps(job_id))
        if name not in names:
            raise UsageError(
                f"job {job_id} has no recorded step {name!r}; it has: {', '.join(names) or 'none'}"
            )
        return names[names.index(name) :]

    async def redrive(
        self,
        where: DeadLetterFilter,
        *,
        by: str = "api",
        queue: str | None = None,
        rate: float | None = None,
        limit: int | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> int:
        """Give dead letters another life: at most *limit*, at most *rate* a second; how many were queued.

        One whose dedupe key is held by a live twin stays a dead letter, and so does one that nobody pays for.
        """
        if rate is not None:
            number("rate", rate, 0.001, 1e6)
        if limit is not None:
            whole("limit", limit, 0, 10**9)
        if queue is not None:
            word("queue", queue)
        done = 0
        async for letter in self._walk(where):
            if limit is not None and done >= limit:
                break
            try:
                await self.redrive_one(letter.id, by=by, queue=queue)
            except (Conflict, InsufficientCredits, QuotaExceeded):
                continue
            done += 1
            progress(done)
            if rate is not None:
                await self.clock.sleep(1 / rate)
        return done

    async def redrive_one(
        self, job_id: JobId, *, by: str, queue: str | None = None, proviso: Proviso = ANYHOW
    ) -> None:
        """`Conflict` when it is no dead letter any more, or a live twin holds its dedupe key."""
        await self.store.retry(job_id, by, kind=Kind.redriven, queue=queue, proviso=proviso)
        self.observers.retried(Kind.redriven)
        self._moved(job_id)

    async def discard(self, where: DeadLetterFilter, *, reason: str, by: str = "api") -> int:
        """Strike dead letters; their jobs stay failed. How many."""
        if not reason:
            raise UsageError("say why these dead letters are discarded: reason=…")
        done = 0
        async for letter in self._walk(where):
            try:
                await self.store.discard(letter.id, by, reason)
            except Conflict:
                continue
            done += 1
        return done

    async def note(self, job_id: str, kind: str, name: str, meta: Mapping[str, Any]) -> bool:
        """Put an event that is no move on a job's record, once for its *name*; whether it is new."""
        known = {one.name: one for one in sorted(NOTES)}
        if kind not in known:
            raise UsageError(f"nothing is noted as {str(kind)[:40]!r}; it is one of {', '.join(known)}")
        if taken := sorted(TAKEN & meta.keys()):
            raise UsageError(f"a note cannot say {taken[0]!r}: events use this word themselves")
        said = {key: value for key, value in meta.items() if value is not None}
        if (told := size(encode(said, what="a note"))) > LONGEST_NOTE:
            raise UsageError(f"a note has at most {LONGEST_NOTE:,} bytes, not {told:,}")
        return await self.store.note(named(job_id), known[kind], word("name", name), said)

    async def _walk(self, where: DeadLetterFilter) -> AsyncIterator[DeadLetter]:
        after: str | None = None
        while page := await self.store.dead_letters(where, after=after, limit=BATCH):
            for letter in page:
                yield letter
            after = page[-1].id

    # -- looking ----------------------------------------------------------------------------------------------------
    async def job(self, job_id: str) -> JobRow:
        row = await self.store.job(named(job_id))
        if row is None:
            raise UnknownJob(job_id)
        return row

    async def wait(self, job_id: str, timeout: Duration | None = None) -> JobRow:
        """The row of the job once it has ended; `TimeoutError` when that takes longer than *timeout*."""
        limit = optional(timeout)
        until = None if limit is None else self.clock.monotonic() + limit.total_seconds()
        while True:
            row = await self.job(job_id)
            if row.state in FINISHED:
                return row
            left = 1.0 if until is None else until - self.clock.monotonic()
            if left <= 0:
                raise TimeoutError(f"job {job_id} is still {row.state} after {timeout}")
            await self.store.wait_for_end(named(job_id), min(left, 1.0))

    async def result_of(self, row: JobRow) -> Any:
        """The result of a complete job, wherever it is. `ResultExpired` when retention has removed it."""
        if row.expired_at is not None:
            why = f"it was removed on {row.expired_at:%Y-%m-%d}"
            raise ResultExpired(f"the result of job {row.id}", why)
        return row.result if row.artefact is None else decode_any(await self.keeper.read(row.artefact))

    async def artefacts(self, job_id: str) -> list[Artefact]:
        return await self.store.artefacts(named(job_id))

    async def jobs(self, where: JobFilter, *, after: str | None = None, limit: int = 50) -> Page:
        whole("limit", limit, 1, MOST_JOBS)
        return await self.store.jobs(where, after=after, limit=limit)

    async def counts(self) -> dict[str, int]:
        return await self.store.counts()

    async def workers(self) -> list[WorkerRow]:
        return await self.store.workers()

    async def events(self, *, after: int = 0, limit: int = 1000, job_id: str | None = None) -> list[Event]:
        whole("after", after, 0, 2**63 - 1)
        whole("limit", limit, 1, MOST_ROWS)
        only = None if job_id is None else named(job_id)
        return await self.store.events(after=after, limit=limit, job_id=only)

    async def attempts(self, job_id: str) -> list[Attempt]:
        return await self.store.attempts(named(job_id))

    async def late_results(self, job_id: str) -> list[LateResult]:
        return await self.store.late_results(named(job_id))

    async def dead_letters(
        self, where: DeadLetterFilter, *, after: str | None = None, limit: int = 50
    ) -> list[DeadLetter]:
        whole("limit", limit, 1, MOST_ROWS)
        return await self.store.dead_letters(where, after=after, limit=limit)

    async def dead_letter_groups(self, where: DeadLetterFilter, limit: int = 50) -> list[DeadLetterGroup]:
        return await self.store.dead_letter_groups(where, limit)


def _stuck_failure(stuck: Expired, most: timedelta) -> Failure:
    told = f"attempt {stuck.attempt} ran longer than {spell(most)} at worker {stuck.worker}"
    return Failure.of("STUCK", told)
