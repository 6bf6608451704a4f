"""One target of messages and the loop that delivers them there.

```text
  take ──▶ waves: one message per key ──▶ deliver ──▶ delivered: published
              └─▶ deadline passed: discarded      │
   ▲                                             │──▶ refused: retried, each time later, or parked
   └── woken, polled, or at once while there are more ◀──┴──▶ unreachable: released; the route pauses for a moment
```

Two batches may be in progress: one is confirmed while the next is taken. Other relays may take the messages
of a dead relay after `TAKEN_FOR`. Nothing is lost, and a message that was published but not marked is
published again with the same id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from holdfast.errors import StoreError
from holdfast.jobs.machine import Clock, Rng
from holdfast.logging import Log
from holdfast.outbox.model import TAKEN_FOR, Delivery, Message, Taken, TopicPolicy, Undelivered
from holdfast.outbox.port import OutboxStore
from holdfast.outbox.relay.batch import EXPIRED, MessageBatch
from holdfast.outbox.relay.pauses import READ_EVERY, Pauses
from holdfast.outbox.transport import Transport

log = Log("holdfast.relay")

MOST_BATCHES = 2
#: The time for all waves of a batch, in seconds, so that it is settled before others may take it.
DELIVER_WITHIN = 20.0
#: The first and the longest pause before an unavailable target is tried again, in seconds. It doubles each
#: time.
FIRST_REST, LONGEST_REST = 0.25, 5.0
#: The pause while the store is unavailable, in seconds.
STORE_REST = 1.0
#: How long a cancelled route may take to record the outcome of its messages, in seconds.
SETTLE_WITHIN = 2.0
#: The shortest wait, in seconds, if a message is due that could not be taken just now.
SHORTEST_WAIT = 0.01


class Route:
    """Delivers the messages of *topics* through one transport.

    *target* is its name in logs, without secrets.
    """

    def __init__(
        self,
        target: str,
        transport: Transport,
        topics: Mapping[str, TopicPolicy],
        store: OutboxStore,
        clock: Clock,
        rng: Rng,
        *,
        batch: int,
        poll: timedelta,
        pauses: Pauses,
    ) -> None:
        self.target, self._transport, self._topics = target, transport, topics
        self._store, self._clock, self._rng = store, clock, rng
        self._batch, self._poll, self._pauses = batch, poll.total_seconds(), pauses
        self._strict = {name: policy.strict for name, policy in topics.items()}
        self._stopping = asyncio.Event()
        self._batch_ended = asyncio.Event()  #: a batch has ended, so messages behind its own may be taken
        self._busy = 0
        self._failures = 0  #: batches in a row for which the target was unavailable

    def stop(self) -> None:
        """Take no more messages. Those in hand are delivered."""
        self._stopping.set()

    async def run(self, *, until_idle: bool = False) -> None:
        """Deliver messages until stopped.

        With *until_idle*, return when no message waits that could be delivered, now or later, or the relay is
        paused.
        """
        await self._transport.open()
        try:
            async with asyncio.TaskGroup() as batches:
                while not self._stopping.is_set():
                    self._batch_ended.clear()
                    if self._busy >= MOST_BATCHES or (self._busy and self._failures):
                        await self._wait_first(self._batch_ended.wait())
                        continue
                    if await self._pauses.paused():
                        if until_idle and not self._busy:
                            return
                        await self._wait_first(self._clock.sleep(READ_EVERY))
                        continue
                    if self._failures:  # the next batch finds out whether the target is back
                        await self._wait_first(self._clock.sleep(self._rest.total_seconds()))
                    began = self._clock.monotonic()
                    taken = await self._take()
                    if taken:
                        self._busy += 1
                        batches.create_task(self._deliver_batch(taken, began), name=f"relay {self.target}")
                    elif not await self._wait_for_more(until_idle):
                        return
        finally:
            await self._transport.close()

    @property
    def _rest(self) -> timedelta:
        return timedelta(seconds=min(FIRST_REST * 2 ** min(max(self._failures - 1, 0), 10), LONGEST_REST))

    # -- taking -----------------------------------------------------------------------------------------------------
    async def _take(self) -> list[Taken]:
        if self._stopping.is_set():
            return []
        try:
            return await self._store.take(self._strict, self._batch, TAKEN_FOR)
        except StoreError as error:
            log.warning("relay.retrying", target=self.target, reason=str(error))
            await self._wait_first(self._clock.sleep(STORE_REST))
            return []

    async def _wait_for_more(self, until_idle: bool) -> bool:
        """Wait until messages may be due.

        Return False if none is left and the route runs until it is idle.
        """
        try:
            ahead = await self._store.next_due(self._topics.keys())
        except StoreError:
            ahead = timedelta(seconds=STORE_REST)
        if ahead is None and until_idle and not self._busy:
            return False
        timeout = self._poll if ahead is None else min(max(ahead.total_seconds(), SHORTEST_WAIT), self._poll)
        await self._wait_first(self._wait_for_wakeup(timeout), self._batch_ended.wait())
        return True

    async def _wait_for_wakeup(self, timeout: float) -> None:
        try:
            await self._store.wait(self._topics.keys(), timeout)
        except StoreError:
            await self._clock.sleep(min(timeout, STORE_REST))

    async def _wait_first(self, *waits: Coroutine[Any, Any, Any]) -> None:
        """Wait until one of *waits* has ended or the route is stopped, and cancel the others."""
        tasks = [asyncio.ensure_future(wait) for wait in (*waits, self._stopping.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- delivering -------------------------------------------------------------------------------------------------
    async def _deliver_batch(self, taken: Sequence[Taken], began: float) -> None:
        """Deliver and settle one batch. *began* is the local time at which it was requested."""
        batch = MessageBatch(taken, self._topics)
        until = self._clock.monotonic() + DELIVER_WITHIN
        try:
            while ready := batch.next_wave(self._store_now(taken[0], began)):
                left = until - self._clock.monotonic()
                if left <= 0:
                    break
                batch.record(ready, await self._deliver([one.message for one in ready], left))
            self._record_availability(batch)
            await self._settle(batch)
        except asyncio.CancelledError:
            with suppress(StoreError, TimeoutError):  # other relays take them after `TAKEN_FOR`
                async with asyncio.timeout(SETTLE_WITHIN):
                    await self._write(batch)
            raise
        finally:
            self._busy -= 1
            self._batch_ended.set()

    def _store_now(self, taken: Taken, began: float) -> datetime:
        """Return the store's time: when it gave out *taken*, plus the time since then by the local clock."""
        since = timedelta(seconds=self._clock.monotonic() - began)
        assert taken.message.not_before is not None
        return taken.message.not_before - TAKEN_FOR + since

    async def _deliver(self, messages: Sequence[Message], seconds: float) -> Sequence[Delivery]:
        failed: Undelivered
        try:
            async with asyncio.timeout(seconds):
                return await self._transport.deliver(messages)
        except TimeoutError:
            failed = Undelivered("the target did not confirm it in time", away=True)
        except Exception:
            log.exception("relay.failed", target=self.target)
            failed = Undelivered("the transport failed; see the relay's log")
        return [failed] * len(messages)

    def _record_availability(self, batch: MessageBatch) -> None:
        """Update and log whether the target is available."""
        if batch.unavailable_reason is None:
            if self._failures:
                log.warning("relay.target_recovered", target=self.target, tries=self._failures)
            self._failures = 0
            return
        self._failures += 1
        if self._failures == 1:
            log.warning(
                "relay.target_unavailable",
                target=self.target,
                reason=batch.unavailable_reason,
                hint="its messages wait",
            )

    async def _settle(self, batch: MessageBatch) -> None:
        """Record the outcomes in the store, and try again while this relay still holds the messages."""
        until = self._clock.monotonic() + (TAKEN_FOR.total_seconds() - DELIVER_WITHIN)
        while True:
            try:
                await self._write(batch)
                break
            except StoreError as error:
                log.warning("relay.retrying", target=self.target, reason=str(error))
                if self._clock.monotonic() >= until:
                    return  # delivered messages will be published again
                await self._clock.sleep(STORE_REST)
        for taken, reason in batch.parked:
            one = taken.message
            log.warning("message.parked", topic=one.topic, message_id=one.id, reason=reason)

    async def _write(self, batch: MessageBatch) -> None:
        if batch.delivered:
            await self._store.delivered(batch.delivered)
        failed = batch.put_off(self._rest, self._rng)
        if failed:
            await self._store.put_off(failed)
        if batch.expired:
            ids = [one.message.id for one in batch.expired]
            await self._store.discard(ids, "relay", EXPIRED)
            log.info("message.expired", target=self.target, messages=len(ids))
