"""The table of requests with a name, which may be sent again.

The row of a request holds JSON: what it has enqueued, `[[id, duplicate], …]`; or its answer; or, while it is carried out, its
ticket: the token, who holds it and until when.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from holdfast.engine.named_request import EarlierRequest, NamedRequest, Repeated, StartedRequest
from holdfast.engine.ports import Row, Transaction
from holdfast.engine.tables.sql import Transacts, fetch, from_json, read, to_json, write
from holdfast.jobs.job import Enqueued, JobBatch, JobId, NewJob

# The row is ours unless one of this name is kept whose time is not up. Of two at once the later one waits here.
_TAKE = """INSERT INTO holdfast.request AS r (digest, fingerprint, answers, until)
VALUES ($1::bytea, $2::bytea, $3::text, holdfast.clock() + $4::interval)
    ON CONFLICT (digest) DO UPDATE
   SET fingerprint = excluded.fingerprint, answers = excluded.answers, until = excluded.until
 WHERE r.until <= holdfast.clock()
RETURNING digest"""
_FIND = "SELECT fingerprint, answers FROM holdfast.request WHERE digest = $1::bytea FOR UPDATE"
_SET_ANSWERS = "UPDATE holdfast.request SET answers = $2::text WHERE digest = $1::bytea"
_RETAKE = """UPDATE holdfast.request SET answers = $2::text, until = holdfast.clock() + $3::interval
 WHERE digest = $1::bytea"""
# The answer itself is accepted for the ticket too: then this call was sent before.
_ANSWER = """UPDATE holdfast.request SET answers = $3::text, until = holdfast.clock() + $4::interval
 WHERE digest = $1::bytea AND answers IN ($2::text, $3::text)
RETURNING digest"""
_DROP = "DELETE FROM holdfast.request WHERE digest = $1::bytea AND answers = $2::text RETURNING digest"
_LEAVE = "UPDATE holdfast.request SET answers = $3::text WHERE digest = $1::bytea AND answers = $2::text RETURNING digest"
_FORGETTABLE = "SELECT digest FROM holdfast.request WHERE until <= (SELECT holdfast.clock()) LIMIT $1::int"

_NOBODY = datetime.min.replace(tzinfo=UTC).isoformat()


async def enqueue_once(
    transaction: Transaction,
    request: NamedRequest,
    jobs: Sequence[NewJob],
    *,
    keep: timedelta,
    enqueue: Callable[[], Awaitable[Sequence[Enqueued]]],
) -> Sequence[Enqueued] | Repeated:
    """Enqueue *jobs* inside *transaction*, unless a request of this name has enqueued jobs before.

    Args:
        transaction: What is stored is stored in it.
        request: Its row is taken first, so that of two requests of one name at once one waits for the end of the other.
        jobs: The jobs of the request.
        keep: How long the request is known.
        enqueue: Enqueues the jobs in this transaction.
    """
    digest = _digest(request)
    expected = [Enqueued(job_id) for batch in JobBatch.split(jobs) for job_id in batch.ids]
    while not await fetch(transaction, _TAKE, digest, request.fingerprint, _answers(expected), keep):
        known = await fetch(transaction, _FIND, digest)
        if known:  # else it was deleted just now
            return _first_answer(known[0], jobs)
    answers = await enqueue()
    if any(answer.duplicate for answer in answers):
        await fetch(transaction, _SET_ANSWERS, digest, _answers(answers))
    return answers


async def begin(
    store: Transacts, request: NamedRequest, holder: str, *, span: timedelta, keep: timedelta
) -> StartedRequest | EarlierRequest:
    """Take a request to carry it out.

    Args:
        store: The store.
        request: The request.
        holder: Names this call: sent again, it has the same answer.
        span: For how long it is taken.
        keep: How long it is known.

    Returns:
        The right to carry it out; under the token of the process before, when that has neither answered in its span. Or
        what is known of it, when another process carries it out or it was answered.
    """

    async def take(transaction: Transaction) -> StartedRequest | EarlierRequest:
        digest = _digest(request)
        while True:
            fresh = _started(holder, holder, await transaction.now() + span)
            if await fetch(transaction, _TAKE, digest, request.fingerprint, fresh.ticket, keep):
                return fresh
            known = await fetch(transaction, _FIND, digest)
            if known:  # else it was deleted just now
                break
        found = _begun_before(known[0], request, holder, await transaction.now(), span)
        if isinstance(found, StartedRequest):
            await fetch(transaction, _RETAKE, digest, found.ticket, keep)
        return found

    return await store.transact(take)


async def answer(
    store: Transacts, request: NamedRequest, ticket: str, answer: str, *, keep: timedelta
) -> bool:
    """Keep the *answer* of a request for *keep*. Return False when another process has taken the request."""
    return bool(await write(store, _ANSWER, _digest(request), ticket, to_json({"answer": answer}), keep))


async def drop(store: Transacts, request: NamedRequest, ticket: str) -> bool:
    """Delete a request that changed nothing. Return False when another process has taken it."""
    return bool(await write(store, _DROP, _digest(request), ticket))


async def leave(store: Transacts, request: NamedRequest, ticket: str) -> bool:
    """Leave a request whose result is unknown: the next process to begin it does so under its token.

    Return False when another process has taken it.
    """
    left = to_json(from_json(ticket) | {"holder": "", "until": _NOBODY})
    return bool(await write(store, _LEAVE, _digest(request), ticket, left))


async def forget(store: Transacts, limit: int) -> int:
    """Delete up to *limit* requests whose time is up, and return how many."""
    if not await read(store, _FORGETTABLE, 1):
        return 0
    sql = f"DELETE FROM holdfast.request WHERE digest IN ({_FORGETTABLE} FOR UPDATE SKIP LOCKED) RETURNING digest"
    return len(await write(store, sql, limit))


def _digest(request: NamedRequest) -> bytes:
    """Return the key of the row: a digest, because a name may have any length and any characters."""
    scope, name = (sha256(text.encode(errors="surrogatepass")).digest() for text in request[:2])
    return sha256(scope + name).digest()


def _answers(answers: Sequence[Enqueued]) -> str:
    return to_json([[answer.id, answer.duplicate] for answer in answers])


def _first_answer(row: Row, jobs: Sequence[NewJob]) -> Sequence[Enqueued] | Repeated:
    """Return what the earlier request has enqueued: as the answer of this one, if this very call was sent again."""
    answers = tuple(Enqueued(JobId(job_id), duplicate) for job_id, duplicate in from_json(row["answers"]))
    new = [answer.id for answer in answers if not answer.duplicate]
    if new and {job.id for job in jobs}.issuperset(new):
        return answers
    return Repeated(fingerprint=row["fingerprint"], answers=answers)


def _started(token: str, holder: str, until: datetime) -> StartedRequest:
    return StartedRequest(token, to_json({"token": token, "holder": holder, "until": until.isoformat()}))


def _begun_before(
    row: Row, request: NamedRequest, holder: str, now: datetime, span: timedelta
) -> StartedRequest | EarlierRequest:
    fingerprint, stored = row["fingerprint"], from_json(row["answers"])
    if "answer" in stored:
        return EarlierRequest(fingerprint, stored["answer"])
    if stored["holder"] == holder:  # the answer to this very call was lost
        return StartedRequest(stored["token"], row["answers"])
    if fingerprint != request.fingerprint or datetime.fromisoformat(stored["until"]) > now:
        return EarlierRequest(fingerprint, None)
    return _started(stored["token"], holder, now + span)
