"""RabbitMQ as the queue of due jobs: one quorum queue for each lane, and a hint is acknowledged once the store has been asked.

It keeps no time: what is due later is offered when it is due, by the duty. Within a lane the order is that of the offers;
priorities are the store's. A hint cannot be taken back: that of a cancelled job is dropped by the worker that gets it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue
from aio_pika.connection import Connection, make_url
from aio_pika.exceptions import AMQPError

from holdfast.domain.job import JobId, Lane
from holdfast.domain.urls import shown
from holdfast.engine.dispatch import BrokerUnavailable, DispatchEntry, DispatchHint, Sizes, hint_of

CONNECT_WITHIN = 3.0
ANSWER_WITHIN = 5.0
CLOSE_WITHIN = 1.0
#: After a loss; a queue that does not answer is deleted in this time, too.
OPEN_WITHIN, LOOK_FOR = 15.0, 2.0
#: How many messages are sent before the relay waits for their confirms.
AT_ONCE = 200
_PLAIN = re.compile(r"[^A-Za-z0-9_.-]+")


class RabbitDispatch:
    """*name* is the store's own: stores that share a broker do not meet there."""

    delays = False
    repeats = False

    def __init__(self, address: str, name: str) -> None:
        self._address, self._where = address, shown(address)
        self._name = f"holdfast.dispatch.{name}"
        self._connection: Connection | None = None
        self._channel: AbstractChannel | None = None
        self._lanes: dict[Lane, None] = {}  #: that were asked for
        self._queues: dict[Lane, AbstractQueue] = {}
        self._unsettled: dict[DispatchHint, list[AbstractIncomingMessage]] = {}
        self._asking = asyncio.Lock()  #: one question at a time: all share a channel
        self._bell = asyncio.Event()

    async def offer(self, entries: Sequence[DispatchEntry]) -> None:
        due = [entry for entry in entries if not entry.delay]
        for start in range(0, len(due), AT_ONCE):
            async with self._ready() as channel:
                some = due[start : start + AT_ONCE]
                names = {lane: (await self._queue(lane)).name for lane in {entry.lane for entry in some}}
                exchange = channel.default_exchange
                await asyncio.gather(
                    *(exchange.publish(_message(entry), names[entry.lane], mandatory=True) for entry in some)
                )
                bell = await channel.get_exchange(f"{self._name}.bell", ensure=False)
                await bell.publish(aio_pika.Message(b""), "")

    async def cancel(self, ids: Collection[JobId]) -> set[JobId]:
        return set()

    async def take(self, lanes: Sequence[Lane], most: int) -> list[DispatchHint]:
        self._bell.clear()
        taken: list[DispatchHint] = []
        async with self._ready():
            for lane in lanes:
                queue = await self._queue(lane)
                while len(taken) < most and (message := await queue.get(fail=False)) is not None:
                    hint = _read(message.body)
                    if hint is None:
                        await message.ack()  # none of ours
                        continue
                    self._unsettled.setdefault(hint, []).append(message)
                    taken.append(hint)
        return taken

    async def took(self, hints: Sequence[DispatchHint]) -> None:
        for message in self._settling(hints):
            with suppress(AMQPError, OSError, RuntimeError):  # it comes again then, and does nothing
                await message.ack()

    async def put_back(self, hints: Sequence[DispatchHint]) -> None:
        for message in self._settling(hints):
            with suppress(AMQPError, OSError, RuntimeError):
                await message.nack(requeue=True)

    def _settling(self, hints: Sequence[DispatchHint]) -> list[AbstractIncomingMessage]:
        return [message for hint in hints for message in self._unsettled.pop(hint, [])]

    async def wait(self, lanes: Sequence[Lane], timeout: float) -> None:
        if self._is_lost:
            async with self._ready():  # or nobody rings
                pass
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._bell.wait()

    async def sizes(self, lanes: Collection[Lane]) -> Sizes:
        ready: dict[Lane, int] = {}
        async with self._ready():
            for lane in lanes:
                ready[lane] = (await self._declare(lane)).declaration_result.message_count or 0
        return Sizes(ready)

    async def built(self) -> None: ...

    async def forget(self, lanes: Collection[Lane]) -> None:
        async with self._ready():
            for lane in lanes:
                await (await self._queue(lane)).purge()

    async def ping(self) -> None:
        async with self._ready(again=True):
            pass

    async def close(self) -> None:
        await self._drop()

    # -- the connection ---------------------------------------------------------------------------------------------
    @property
    def _is_lost(self) -> bool:
        return self._channel is None or self._channel.is_closed

    @asynccontextmanager
    async def _ready(self, *, again: bool = False) -> AsyncIterator[AbstractChannel]:
        """A channel with what we need declared. Whatever goes wrong with it leaves it in doubt: it is dropped.

        Opened *again* after a loss only by those who have the time to wait for it.
        """
        if self._lanes and self._is_lost and not again:
            raise BrokerUnavailable(f"the connection to {self._where} was lost")
        async with self._asking:
            try:
                async with asyncio.timeout(OPEN_WITHIN if again else ANSWER_WITHIN):
                    channel = self._channel
                    if channel is None or self._is_lost:
                        channel = await self._open()
                    yield channel
            except (OSError, AMQPError, RuntimeError, ValueError, TimeoutError) as error:
                await self._drop()
                raise BrokerUnavailable(
                    f"{self._where} does not do it now ({type(error).__name__})"
                ) from error
            except BaseException:  # cancelled in the middle of an answer
                await self._drop()
                raise

    async def _open(self) -> AbstractChannel:
        await self._drop()
        for name in ("aiormq", "aio_pika"):  # every loss comes with its stack; we say it in one line
            if logging.getLogger(name).level == logging.NOTSET:
                logging.getLogger(name).setLevel(logging.CRITICAL)
        self._connection = connection = Connection(make_url(self._address))
        await connection.connect(timeout=CONNECT_WITHIN)
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        exchange = await channel.declare_exchange(f"{self._name}.bell", "fanout", auto_delete=True)
        ear = await channel.declare_queue("", exclusive=True, arguments={"x-max-length": 1})
        await ear.bind(exchange)
        await ear.consume(self._ring, no_ack=True)
        self._channel = channel
        for lane in self._lanes:
            await self._look_at(lane)
        return channel

    async def _look_at(self, lane: Lane) -> None:
        """The broker answers a while before its quorum queues do, and one that was new when the broker was killed may never
        answer again. It held hints only: away with it."""
        queue = await self._queue(lane)
        try:
            async with asyncio.timeout(LOOK_FOR):
                message = await queue.get(fail=False)
        except TimeoutError:
            assert self._connection is not None
            async with self._connection.channel() as channel:  # ours still waits for that answer
                await channel.queue_delete(queue.name)
            raise
        if message is not None:
            await message.nack(requeue=True)

    async def _ring(self, _: AbstractIncomingMessage) -> None:
        self._bell.set()

    async def _queue(self, lane: Lane) -> AbstractQueue:
        queue = self._queues.get(lane)
        if queue is None:
            self._lanes[lane] = None
            queue = self._queues[lane] = await self._declare(lane)
        return queue

    async def _declare(self, lane: Lane) -> AbstractQueue:
        assert self._channel is not None
        name = f"{self._name}.{lane_name(lane)}"
        return await self._channel.declare_queue(name, durable=True, arguments={"x-queue-type": "quorum"})

    async def _drop(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        self._queues.clear()
        self._unsettled.clear()  # the broker gives them to somebody else
        self._bell.set()
        if connection is not None:
            with suppress(Exception):
                async with asyncio.timeout(CLOSE_WITHIN):
                    await connection.close()
            with suppress(Exception):
                await connection.close()  # it has let go of the socket: this only notes that it is closed


def lane_name(lane: Lane) -> str:
    """For people, as far as it is short and plain; the digest keeps lanes apart."""
    digest = hashlib.sha256("\x1f".join(map(str, lane)).encode()).hexdigest()[:12]
    return f"{_PLAIN.sub('_', f'{lane.queue}.{lane.task}')[:120]}.{digest}"


def _message(entry: DispatchEntry) -> aio_pika.Message:
    body = f"{entry.job_id}:{entry.generation}".encode()
    return aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT, app_id="holdfast")


def _read(body: bytes) -> DispatchHint | None:
    job_id, _, generation = body[:100].decode(errors="replace").partition(":")
    return hint_of(job_id, generation)
