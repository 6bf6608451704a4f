"""What people do about jobs: cancel, retry, redrive, discard, note. Mixed into the engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from datetime import timedelta
from typing import Any

from holdfast.domain.internal import is_internal
from holdfast.domain.job import DeadLetter, DeadLetterFilter, Edit, JobId, JobRow, named
from holdfast.domain.moves import NOTES, Kind
from holdfast.domain.precondition import UNCONDITIONAL, Precondition
from holdfast.domain.validation import number, whole, word
from holdfast.domain.verdict import Bury, RetryAfter
from holdfast.engine.dispatcher import Dispatcher
from holdfast.engine.payload import decode_any, encode, size
from holdfast.engine.ports import Reclaim, StuckAttempt
from holdfast.engine.recovery import BATCH, Recovery, stuck_failure
from holdfast.engine.tasks import checked_priority
from holdfast.errors import (
    Changed,
    Conflict,
    Forbidden,
    InsufficientCredits,
    PayloadError,
    QuotaExceeded,
    UnknownJob,
    UsageError,
)

#: In bytes, of what is said with a note; and the words that mean something in every event.
LONGEST_NOTE = 4_000
TAKEN = frozenset({"attempt", "epoch", "job", "kind", "name", "token"})


class ManualActions(Recovery):
    broker: Dispatcher | None  #: told of jobs that wait, where workers get them from there

    async def job(self, job_id: str) -> JobRow:
        row = await self.store.job(named(job_id))
        if row is None:
            raise UnknownJob(job_id)
        return row

    async def cancel(
        self, job_id: str, *, by: str = "api", reason: str = "", precondition: Precondition = UNCONDITIONAL
    ) -> None:
        """Queued or processing → cancelled. A running attempt is told to stop."""
        known = named(job_id)
        await self.store.cancel(known, by, reason, precondition=precondition)
        self._moved(known)

    async def retry(
        self,
        job_id: str,
        *,
        by: str = "api",
        owner: str | None = None,
        from_step: str | None = None,
        args: Mapping[str, Any] | None = None,
        priority: int | str | None = None,
        precondition: Precondition = UNCONDITIONAL,
    ) -> int:
        """Run a failed, cancelled, waiting or stuck job now; its place in line. Else `Conflict`.

        *owner* refuses another's job. *from_step* forgets that step and every one recorded after it. *args* are what it is
        called with instead; its steps, recorded for another call, are forgotten. *priority* is the job's from now on; None keeps
        the one it has. *precondition*: only if.
        """
        known = named(job_id)
        level = None if priority is None else checked_priority(priority)
        if owner is not None:
            row = await self.job(known)
            if row.owner != owner:
                raise Conflict(f"job {job_id} belongs to another owner")
        forget = None if from_step is None else await self._steps_from(known, from_step)
        edit = None if args is None else await self._edit(known, args)
        if edit is None:
            await self._check_again(known)
        place = await self._retry(known, by, forget, edit, level, precondition)
        self.observers.retried(Kind.manual_retry)
        self._moved(known)
        return place

    async def _retry(
        self,
        job_id: JobId,
        by: str,
        forget: Collection[str] | None,
        edit: Edit | None,
        priority: int | None,
        precondition: Precondition,
    ) -> int:
        """In one move, also where it is to be taken from a worker that lives: of two who ask, one is refused."""

        async def retry(stuck: StuckAttempt | None) -> int:
            return await self.store.retry(
                job_id,
                by,
                kind=Kind.manual_retry,
                forget=forget,
                edit=edit,
                priority=priority,
                precondition=precondition,
                stuck=stuck,
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
        failure = stuck_failure(attempt, limits[attempt.lane.task])
        place = await retry(StuckAttempt(attempt.lease, failure))
        is_last = attempt.attempt >= attempt.max_attempts
        verdict = Bury(failure) if is_last else RetryAfter(timedelta(), failure)
        self.observers.reclaimed([(attempt, Reclaim(attempt.lease, verdict, crashed=False))], 1)
        return place

    async def _edit(self, job_id: JobId, args: Mapping[str, Any]) -> Edit:
        """Another call of its task, checked as `enqueue` does."""
        row = await self.job(job_id)
        task = self.tasks.get(row.task)
        if is_internal(row.task):
            raise Forbidden(f"job {job_id} is one of the engine's own; it is retried as it is, without args")
        if task is None:
            raise UsageError(
                f"task {row.task!r} is not one of this app, so other arguments cannot be checked; retry it as it is, or in its app"
            )
        payload = task.signature.dump(task.signature.bind((), args), self.settings.payload_limit)
        task.check(row.owner, payload)
        before, after = row.payload if isinstance(row.payload, dict) else {}, decode_any(payload)
        names = sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
        return Edit(payload, task.policy.version, tuple(names))

    def check_again(self, row: JobRow) -> None:
        """Ask the check of its task about a job that is to run again: its arguments were accepted under other rules, or were
        never checked (`reject`)."""
        if row.task in self.tasks:
            self.tasks[row.task].check_again(row.owner, row.payload)

    async def _check_again(self, job_id: JobId) -> None:
        if any(task.policy.check for task in self.tasks.values()):
            self.check_again(await self.job(job_id))

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
        """Redrive dead letters, at most *limit* and at most *rate* a second, and return how many were queued.

        One whose dedupe key is held by a live twin stays a dead letter, and so does one that nobody pays for or that its
        task's check refuses.
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
            except (Conflict, Forbidden, InsufficientCredits, PayloadError, QuotaExceeded):
                continue
            done += 1
            progress(done)
            if rate is not None:
                await self.clock.sleep(1 / rate)
        return done

    async def redrive_one(
        self, job_id: JobId, *, by: str, queue: str | None = None, precondition: Precondition = UNCONDITIONAL
    ) -> None:
        """`Conflict` when it is no dead letter any more, or a live twin holds its dedupe key. `Forbidden` when its task's
        check refuses it, or when it is the engine's own and is to change its queue."""
        if queue is not None and is_internal((await self.job(job_id)).task):
            raise Forbidden(f"job {job_id} is one of the engine's own; it stays in its queue")
        await self._check_again(job_id)
        await self.store.retry(job_id, by, kind=Kind.redriven, queue=queue, precondition=precondition)
        self.observers.retried(Kind.redriven)
        self._moved(job_id)

    async def discard(self, where: DeadLetterFilter, *, reason: str, by: str = "api") -> int:
        """Delete dead letters and return how many; their jobs stay failed."""
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

    def _moved(self, job_id: JobId) -> None:
        if self.broker is not None:
            self.broker.moved(job_id)
