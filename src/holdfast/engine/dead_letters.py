"""`app.dead_letters`: list, count, redrive and discard what will not be retried by itself."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Unpack

from holdfast.engine.engine import Engine
from holdfast.engine.filters import DeadLetterFilters, dead_letters_matching
from holdfast.engine.manual_retry import check_again, job_row, patched, retry_charges
from holdfast.engine.namespace import Namespace
from holdfast.engine.recovery import BATCH
from holdfast.errors import (
    Conflict,
    Forbidden,
    PayloadError,
    Refused,
    UsageError,
)
from holdfast.jobs.internal import is_internal
from holdfast.jobs.job import DeadLetter, DeadLetterFilter, DeadLetterGroup, JobId, named
from holdfast.jobs.moves import Kind
from holdfast.jobs.precondition import UNCONDITIONAL, Precondition
from holdfast.values.validation import number, whole, word

#: How many dead letters one page may hold.
MOST_ROWS = 1_000_000


class DeadLetters(Namespace):
    """Records of jobs that will not be retried by themselves."""

    async def list(
        self,
        where: DeadLetterFilter | None = None,
        *,
        after: str | None = None,
        limit: int = 50,
        contents: bool = True,
        **filters: Unpack[DeadLetterFilters],
    ) -> builtins.list[DeadLetter]:
        """Return dead letters by id, from behind the id *after*. A page that is not full is the last one.

        Without *contents*, arguments are not read.
        """
        whole("limit", limit, 1, MOST_ROWS)
        chosen = dead_letters_matching(where, filters)
        store = (await self._engine()).store
        return await store.queries.dead_letters(chosen, after=after, limit=limit, contents=contents)

    async def count(self, where: DeadLetterFilter | None = None, **filters: Unpack[DeadLetterFilters]) -> int:
        """Return how many dead letters match."""
        chosen = dead_letters_matching(where, filters)
        return await (await self._engine()).store.queries.count_dead_letters(chosen)

    async def groups(
        self, where: DeadLetterFilter | None = None, *, limit: int = 50, **filters: Unpack[DeadLetterFilters]
    ) -> builtins.list[DeadLetterGroup]:
        """Return the causes of dead letters, each with how many there are, most first."""
        chosen = dead_letters_matching(where, filters)
        return await (await self._engine()).store.queries.dead_letter_groups(chosen, limit)

    async def redrive(
        self,
        where: DeadLetterFilter | None = None,
        *,
        by: str = "api",
        to_queue: str | None = None,
        rate: float | None = None,
        limit: int | None = None,
        progress: Callable[[int], None] = lambda done: None,
        **filters: Unpack[DeadLetterFilters],
    ) -> int:
        """Queue the jobs of dead letters again, and return how many were queued.

        A dead letter stays when a live twin holds its dedupe key, when its owner cannot pay for it or has used up its quota
        of manual retries, and when its task's check refuses it. `app.operations.begin("redrive", …)` leaves the work to the workers.

        Args:
            where: Which dead letters, as a filter that was made before. Without it and without filters: all.
            by: Who redrives them; the events record it.
            to_queue: Queue them there instead of in the queue they came from.
            rate: At most this many a second.
            limit: At most this many.
            progress: Called with the number done so far.
            filters: Which dead letters; see `DeadLetterFilters`.
        """
        chosen = dead_letters_matching(where, filters)
        if rate is not None:
            number("rate", rate, 0.001, 1e6)
        if limit is not None:
            whole("limit", limit, 0, 10**9)
        if to_queue is not None:
            word("to_queue", to_queue)
        engine, done = await self._engine(), 0
        async for letter in _walk(engine, chosen):
            if limit is not None and done >= limit:
                break
            try:
                await redrive_one(engine, letter.id, by=by, to_queue=to_queue)
            except (Conflict, Forbidden, PayloadError, Refused):
                continue
            done += 1
            progress(done)
            if rate is not None:
                await engine.clock.sleep(1 / rate)
        return done

    async def redrive_one(
        self,
        job_id: str,
        *,
        by: str = "api",
        to_queue: str | None = None,
        precondition: Precondition = UNCONDITIONAL,
    ) -> None:
        """Queue the job of one dead letter again.

        Raises:
            Conflict: It is no dead letter any more, or a live twin holds its dedupe key.
            Forbidden: The task's check refuses it, or it is the engine's own and *to_queue* is given.
            QuotaExceeded: Its owner, or the organization of its owner, has used up its quota of manual retries.
        """
        engine = await self._engine()
        await redrive_one(engine, named(job_id), by=by, to_queue=to_queue, precondition=precondition)

    async def discard(
        self,
        where: DeadLetterFilter | None = None,
        *,
        reason: str,
        by: str = "api",
        **filters: Unpack[DeadLetterFilters],
    ) -> int:
        """Delete dead letters and return how many. Their jobs stay failed; an event records *reason* and *by*."""
        chosen = dead_letters_matching(where, filters)
        if not reason:
            raise UsageError("say why these dead letters are discarded: reason=…")
        engine, done = await self._engine(), 0
        async for letter in _walk(engine, chosen):
            try:
                await engine.store.discard(letter.id, by, reason)
            except Conflict:
                continue
            done += 1
        return done

    async def discard_one(
        self, job_id: str, *, reason: str, by: str = "api", precondition: Precondition = UNCONDITIONAL
    ) -> None:
        """Delete one dead letter; its job stays failed. Raises `Conflict` when there is none."""
        store = (await self._engine()).store
        await store.discard(named(job_id), by, reason, precondition=precondition)


async def redrive_one(
    engine: Engine,
    job_id: JobId,
    *,
    by: str,
    to_queue: str | None = None,
    patch: Mapping[str, Any] | None = None,
    precondition: Precondition = UNCONDITIONAL,
) -> None:
    """Queue the job of one dead letter again, its arguments changed by a *patch* if there is one; see `DeadLetters.redrive_one`."""
    if to_queue is not None and is_internal((await job_row(engine, job_id)).task):
        raise Forbidden(f"job {job_id} is one of the engine's own; it stays in its queue")
    edit = None
    if patch is None:
        await check_again(engine, job_id)
    else:
        edit = await patched(engine, job_id, patch)
    charges = await retry_charges(engine, job_id)
    await engine.store.retry(
        job_id,
        by,
        kind=Kind.redriven,
        queue=to_queue,
        edit=edit,
        precondition=precondition,
        charges=charges,
    )
    engine.observers.retried(Kind.redriven)
    engine.moved(job_id)


async def _walk(engine: Engine, where: DeadLetterFilter) -> AsyncIterator[DeadLetter]:
    after: str | None = None
    while page := await engine.store.queries.dead_letters(where, after=after, limit=BATCH):
        for letter in page:
            yield letter
        after = page[-1].id
