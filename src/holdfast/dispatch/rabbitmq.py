"""RabbitMQ as the broker of due jobs: one quorum queue per lane.

A hint is acknowledged after the claim in the store. There is no delayed delivery: the maintenance task
`dispatch` offers a job when it is due. Within a lane the order is that of the offers, without priorities. A
hint cannot be withdrawn: the worker that receives the hint of a cancelled job drops it.
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

from holdfast.engine.dispatch import BrokerUnavailable, DispatchEntry, DispatchHint, Sizes, hint_of
from holdfast.jobs.job import JobId, Lane
from holdfast.values.urls import shown

CONNECT_WITHIN = 3.0
ANSWER_WITHIN = 5.0
CLOSE_WITHIN = 1.0
#: Seconds to reconnect after a loss, and to wait for a queue before it is deleted.
OPEN_WITHIN, CHECK_WITHIN = 15.0, 2.0
#: How many messages are sent before their confirms are awaited.
AT_ONCE = 200
_PLAIN = re.compile(r"[^A-Za-z0-9_.-]+")


class RabbitDispatch:
    """Implements `Dispatch` with RabbitMQ.

    *name* is unique to the store, so that stores can share a broker.
    """

    delays = False
    repeats = False

    def __init__(self, address: str, name: str) -> None:
        self._address, self._where = address, shown(address)
        self._name = f"holdfast.dispatch.{name}"
        self._connection: Connection | None = None
        self._channel: AbstractChannel | None = None
        self._lanes: dict[Lane, None] = {}  #: all lanes used so far, in order
        self._queues: dict[Lane, AbstractQueue] = {}
        self._unsettled: dict[DispatchHint, list[AbstractIncomingMessage]] = {}
        self._lock = asyncio.Lock()  #: one request at a time: all share a channel
        self._wakeup = asyncio.Event()

    async def offer(self, entries: Sequence[DispatchEntry]) -> None:
        due = [entry for entry in entries if not entry.delay]
        for start in range(0, len(due), AT_ONCE):
            async with self._ready() as channel:
                batch = due[start : start + AT_ONCE]
                names = {lane: (await self._queue(lane)).name for lane in {entry.lane for entry in batch}}
                exchange = channel.default_exchange
                await asyncio.gather(
                    *(exchange.publish(_message(entry), names[entry.lane], mandatory=True) for entry in batch)
                )
                wakeups = await channel.get_exchange(f"{self._name}.bell", ensure=False)
                await wakeups.publish(aio_pika.Message(b""), "")

    async def cancel(self, ids: Collection[JobId]) -> set[JobId]:
        return set()

    async def take(self, lanes: Sequence[Lane], most: int) -> list[DispatchHint]:
        self._wakeup.clear()
        taken: list[DispatchHint] = []
        async with self._ready():
            for lane in lanes:
                queue = await self._queue(lane)
                while len(taken) < most and (message := await queue.get(fail=False)) is not None:
                    hint = _read(message.body)
                    if hint is None:
                        await message.ack()  # not one of Holdfast's messages
                        continue
                    self._unsettled.setdefault(hint, []).append(message)
                    taken.append(hint)
        return taken

    async def took(self, hints: Sequence[DispatchHint]) -> None:
        for message in self._pop_messages(hints):
            with suppress(AMQPError, OSError, RuntimeError):  # it is delivered again then, which does no harm
                await message.ack()

    async def put_back(self, hints: Sequence[DispatchHint]) -> None:
        for message in self._pop_messages(hints):
            with suppress(AMQPError, OSError, RuntimeError):
                await message.nack(requeue=True)

    def _pop_messages(self, hints: Sequence[DispatchHint]) -> list[AbstractIncomingMessage]:
        return [message for hint in hints for message in self._unsettled.pop(hint, [])]

    async def wait(self, lanes: Sequence[Lane], timeout: float) -> None:
        if self._is_lost:
            async with self._ready():  # without a connection no wake-up arrives
                pass
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._wakeup.wait()

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
        """Lend the channel, with everything declared. After any error its state is unknown, so it is dropped.

        A lost connection is opened *again* only for callers that can wait for it.

        Raises:
            BrokerUnavailable: The connection was lost, or the broker did not answer.
        """
        if self._lanes and self._is_lost and not again:
            raise BrokerUnavailable(f"the connection to {self._where} was lost")
        async with self._lock:
            try:
                async with asyncio.timeout(OPEN_WITHIN if again else ANSWER_WITHIN):
                    channel = self._channel
                    if channel is None or self._is_lost:
                        channel = await self._open()
                    yield channel
            except (OSError, AMQPError, RuntimeError, ValueError, TimeoutError) as error:
                await self._drop()
                raise BrokerUnavailable(f"{self._where} is unavailable ({type(error).__name__})") from error
            except BaseException:  # cancelled in the middle of an answer
                await self._drop()
                raise

    async def _open(self) -> AbstractChannel:
        await self._drop()
        for name in ("aiormq", "aio_pika"):  # they log every loss with its stack; one line is enough
            if logging.getLogger(name).level == logging.NOTSET:
                logging.getLogger(name).setLevel(logging.CRITICAL)
        self._connection = connection = Connection(make_url(self._address))
        await connection.connect(timeout=CONNECT_WITHIN)
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        exchange = await channel.declare_exchange(f"{self._name}.bell", "fanout", auto_delete=True)
        inbox = await channel.declare_queue("", exclusive=True, arguments={"x-max-length": 1})
        await inbox.bind(exchange)
        await inbox.consume(self._wake, no_ack=True)
        self._channel = channel
        for lane in self._lanes:
            await self._check_queue(lane)
        return channel

    async def _check_queue(self, lane: Lane) -> None:
        """Check that the queue of *lane* answers, and delete it if it does not. It holds only hints.

        After a restart the broker answers before its quorum queues do. A queue that was new when the broker
        was killed may never answer again.
        """
        queue = await self._queue(lane)
        try:
            async with asyncio.timeout(CHECK_WITHIN):
                message = await queue.get(fail=False)
        except TimeoutError:
            assert self._connection is not None
            async with self._connection.channel() as channel:  # the other channel still waits for that answer
                await channel.queue_delete(queue.name)
            raise
        if message is not None:
            await message.nack(requeue=True)

    async def _wake(self, _: AbstractIncomingMessage) -> None:
        self._wakeup.set()

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
        self._unsettled.clear()  # the broker delivers them to another worker
        self._wakeup.set()
        if connection is not None:
            with suppress(Exception):
                async with asyncio.timeout(CLOSE_WITHIN):
                    await connection.close()
            with suppress(Exception):
                await connection.close()  # the socket is released: this only marks it as closed


def lane_name(lane: Lane) -> str:
    """Return a readable queue name for *lane*. Its digest keeps lanes apart whose readable parts agree."""
    digest = hashlib.sha256("\x1f".join(map(str, lane)).encode()).hexdigest()[:12]
    return f"{_PLAIN.sub('_', f'{lane.queue}.{lane.task}')[:120]}.{digest}"


def _message(entry: DispatchEntry) -> aio_pika.Message:
    body = f"{entry.job_id}:{entry.generation}".encode()
    return aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT, app_id="holdfast")


def _read(body: bytes) -> DispatchHint | None:
    job_id, _, generation = body[:100].decode(errors="replace").partition(":")
    return hint_of(job_id, generation)
