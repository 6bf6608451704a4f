"""List, recover and discard the dead letters on the broker (G4). Nothing sends them again automatically.

Reading takes messages from the queue and returns them, so two readers at the same time see a part each. The
store has every failed submission as well (`holdfast dead list`); these are the workers' own records.
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
from holdfast.logging import Log
from systems.grading.callbacks.consumer import declare
from systems.grading.messages import DeadLetter, parse_request_id
from systems.grading.submissions import send_again
from systems.grading.tasks import Grading
from systems.grading.topology import DEAD

log = Log("grading.dlq")
MAX_LETTERS = 500


class NoBroker(HoldfastError):
    """The broker cannot be reached."""


class NoSuchLetter(HoldfastError):
    """There is no dead letter for this request."""


async def list_dead(grading: Grading, *, limit: int = 50) -> list[DeadLetter]:
    """Return up to *limit* dead letters, oldest first. They stay in the queue."""
    async with _letters(grading, min(limit, MAX_LETTERS)) as messages:
        return [read(message) for message in messages]


async def recover(grading: Grading, request: str, *, by: str) -> JobRow:
    """Send the submission of a dead letter again, as a new request, delete the letter, and return the job.

    If the process is killed before it deletes the letter, the letter stays. Recovering it again then only
    deletes it.

    Raises:
        NoSuchLetter: There is no letter for *request*.
        Conflict: The submission has not failed. The letter stays.
    """
    async with _letters(grading, MAX_LETTERS) as messages:
        letters = [message for message in messages if read(message).request_id == request]
        if not letters:
            raise NoSuchLetter(
                f"there is no dead letter of request {request[:80]!r} among the first {MAX_LETTERS}"
            )
        submission, generation = parse_request_id(request)
        row = await grading.app.jobs.get(submission)
        if row.generation == generation:
            if row.state not in (State.FAILED, State.CANCELLED):
                raise Conflict(f"submission {submission} has not failed; it is {row.state}")
            row = await send_again(grading, submission, by=by)
        for message in letters:
            await message.ack()
    log.info("dead_letter.recovered", request_id=request, by=by)
    return row


async def discard(grading: Grading, request: str, *, by: str) -> int:
    """Delete the letters of a request and return their number.

    An empty *request* means letters without one.
    """
    async with _letters(grading, MAX_LETTERS) as messages:
        letters = [message for message in messages if read(message).request_id == request]
        for message in letters:
            await message.ack()
    log.info("dead_letter.discarded", request_id=request, by=by, letters=len(letters))
    return len(letters)


def read(message: AbstractIncomingMessage) -> DeadLetter:
    """Return the dead letter in *message*.

    If the broker dead-lettered it, the letter is made from its headers.
    """
    try:
        return msgspec.json.decode(message.body, type=DeadLetter)
    except (msgspec.DecodeError, UnicodeDecodeError):
        headers = message.headers or {}
        name = str(headers.get("id") or "")[:100]
        try:
            submission = parse_request_id(name)[0]
        except ValueError:
            name, submission = "", ""
        death: Any = (headers.get("x-death") or [{}])[0]  # type: ignore[index]
        reason, at = str(death.get("reason", "unknown")), death.get("time")
        return DeadLetter(
            name,
            submission,
            {"delivery_limit": "WORKER_LOST"}.get(reason, "INVALID_MESSAGE"),
            int(death.get("count") or 0),
            f"the broker dead-lettered it: {reason}",
            at.isoformat() if isinstance(at, datetime) else "",
            message.body[:2_000].decode(errors="replace"),
        )


@asynccontextmanager
async def _letters(grading: Grading, limit: int) -> AsyncIterator[list[AbstractIncomingMessage]]:
    """Yield up to *limit* messages. Those that the block does not acknowledge return to the queue."""
    try:
        connection = await aio_pika.connect(grading.settings.broker_url, timeout=5)
    except (AMQPError, OSError, TimeoutError) as error:
        raise NoBroker(
            f"the broker cannot be reached ({type(error).__name__}); check BROKER_URL, and that it runs"
        ) from None
    async with connection:  # closing it returns what was not acknowledged
        channel = await connection.channel()
        await declare(channel)
        queue = await channel.get_queue(DEAD, ensure=False)
        messages: list[AbstractIncomingMessage] = []
        while len(messages) < limit and (message := await queue.get(fail=False)) is not None:
            messages.append(message)
        yield messages
