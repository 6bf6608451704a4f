"""Dead letters on the broker (G4): looked at in place, sent again by hand, never by themselves.

A look takes messages out and puts them back, so two that look at the same time see a part each. The store has every failed
submission as well (`holdfast dead list`): what is here is what the workers said.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import aio_pika
import msgspec
from aio_pika.abc import AbstractIncomingMessage
from aio_pika.exceptions import AMQPError

from holdfast import Conflict, HoldfastError, JobRow, State
from holdfast.logs import Log
from systems.grading.callbacks.consuming import declare
from systems.grading.messages import Buried, split
from systems.grading.submitting import send_again
from systems.grading.tasks import Grading
from systems.grading.topology import DEAD

log = Log("grading.dlq")
MOST = 500


class NoBroker(HoldfastError):
    """The broker cannot be asked now."""


class NoSuchLetter(HoldfastError):
    """There is no dead letter of this request."""


async def list_dead(grading: Grading, *, limit: int = 50) -> list[Buried]:
    """Oldest first; they stay where they are."""
    async with _letters(grading, min(limit, MOST)) as found:
        return [read(message) for message in found]


async def recover(grading: Grading, request: str, *, by: str) -> JobRow:
    """Send the submission of this dead letter again, as a new request, and delete the letter.

    `NoSuchLetter` when there is none; `Conflict` when the submission has not failed: the letter stays then. Killed before the
    letter is deleted, it is there once more, and its submission refuses to be sent twice for it.
    """
    async with _letters(grading, MOST) as found:
        letters = [message for message in found if read(message).request_id == request]
        if not letters:
            raise NoSuchLetter(f"there is no dead letter of request {request[:80]!r} among the first {MOST}")
        submission, generation = split(request)
        row = await grading.app.job(submission)
        if row.generation == generation:
            if row.state not in (State.FAILED, State.CANCELLED):
                raise Conflict(f"submission {submission} has not failed; it is {row.state}")
            row = await send_again(grading, submission, by=by)
        for message in letters:
            await message.ack()
    log.info("dead_letter.recovered", request_id=request, by=by)
    return row


async def discard(grading: Grading, request: str, *, by: str) -> int:
    """Delete the letters of a request (the empty one: those that name none) and return how many."""
    async with _letters(grading, MOST) as found:
        letters = [message for message in found if read(message).request_id == request]
        for message in letters:
            await message.ack()
    log.info("dead_letter.discarded", request_id=request, by=by, letters=len(letters))
    return len(letters)


def read(message: AbstractIncomingMessage) -> Buried:
    """What a worker has buried; or what the broker did, with as much as its headers tell."""
    try:
        return msgspec.json.decode(message.body, type=Buried)
    except (msgspec.DecodeError, UnicodeDecodeError):
        headers = message.headers or {}
        name = str(headers.get("id") or "")[:100]
        try:
            submission = split(name)[0]
        except ValueError:
            name, submission = "", ""
        death: Any = (headers.get("x-death") or [{}])[0]  # type: ignore[index]
        reason, at = str(death.get("reason", "unknown")), death.get("time")
        return Buried(
            name,
            submission,
            {"delivery_limit": "WORKER_LOST"}.get(reason, "INVALID_MESSAGE"),
            int(death.get("count") or 0),
            f"the broker put it aside: {reason}",
            at.isoformat() if isinstance(at, datetime) else "",
            message.body[:2_000].decode(errors="replace"),
        )


@asynccontextmanager
async def _letters(grading: Grading, limit: int) -> AsyncIterator[list[AbstractIncomingMessage]]:
    """Up to *limit* of them in hand; those that are not acknowledged inside go back."""
    try:
        connection = await aio_pika.connect(grading.settings.broker_url, timeout=5)
    except (AMQPError, OSError, TimeoutError) as error:
        raise NoBroker(
            f"the broker cannot be reached ({type(error).__name__}); check BROKER_URL, and that it runs"
        ) from None
    async with connection:  # closing it gives back what was not acknowledged
        channel = await connection.channel()
        await declare(channel)
        queue = await channel.get_queue(DEAD, ensure=False)
        found: list[AbstractIncomingMessage] = []
        while len(found) < limit and (message := await queue.get(fail=False)) is not None:
            found.append(message)
        yield found
