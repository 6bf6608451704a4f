"""One target of messages and the loop that brings them there.

```text
  take ──▶ waves: of one key one at a time ──▶ deliver ──▶ delivered: published
              └─▶ past its deadline: discarded    │
   ▲                                             │──▶ refused: put off, each time for longer, or parked
   └── woken, polled, or at once while there are more ◀──┴──▶ nobody there: given back; the route rests for a moment
```

Two batches may be under way: one is confirmed while the next is taken. A relay that dies leaves what it had to others after
`TAKEN_FOR`: nothing is lost, and what was published but not marked is published again, under the same id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from holdfast.domain.outbox import TAKEN_FOR, Delivery, Message, Taken, TopicPolicy, Undelivered
from holdfast.engine.outbox_store import OutboxStore
from holdfast.engine.ports import Clock, Rng
from holdfast.engine.transport import Transport
from holdfast.errors import StoreError
from holdfast.logs import Log
from holdfast.relay.batch import EXPIRED, MessageBatch
from holdfast.relay.pauses import LOOK_EVERY, Pauses

log = Log("holdfast.relay")

HANDS = 2
#: All waves of a batch, so that it is settled before others may take it.
DELIVER_WITHIN = 20.0
#: A target that is away is asked again after this long, doubled each time up to the second.
FIRST_REST, LONGEST_REST = 0.25, 5.0
#: A store that is away.
STORE_REST = 1.0
#: What a relay that has to end at once may still take to say what became of its messages.
LAST_WORDS = 2.0
#: Something is due already, and could not be taken just now.
SOONEST = 0.01


class Route:
    """*target* is how it is called in logs, without secrets."""

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
        self._free = asyncio.Event()  #: a hand came free: what stood behind its messages may be taken
        self._busy = 0
        self._refusals = 0  #: batches in a row for which nobody was there

    def stop(self) -> None:
        """Take no more; what is in hand is delivered."""
        self._stopping.set()

    async def run(self, *, until_idle: bool = False) -> None:
        """Until stopped; *until_idle*: until nothing waits that could be delivered, now or later, or the relay is paused."""
        await self._transport.open()
        try:
            async with asyncio.TaskGroup() as hands:
                while not self._stopping.is_set():
                    self._free.clear()
                    if self._busy >= HANDS or (self._busy and self._refusals):
                        await self._first(self._free.wait())
                        continue
                    if await self._pauses.paused():
                        if until_idle and not self._busy:
                            return
                        await self._first(self._clock.sleep(LOOK_EVERY))
                        continue
                    if self._refusals:  # the next batch finds out whether anybody is there
                        await self._first(self._clock.sleep(self._rest.total_seconds()))
                    began = self._clock.monotonic()
                    taken = await self._take()
                    if taken:
                        self._busy += 1
                        hands.create_task(self._serve(taken, began), name=f"relay {self.target}")
                    elif not await self._wait_for_more(until_idle):
                        return
        finally:
            await self._transport.close()

    @property
    def _rest(self) -> timedelta:
        return timedelta(seconds=min(FIRST_REST * 2 ** min(max(self._refusals - 1, 0), 10), LONGEST_REST))

    # -- taking -----------------------------------------------------------------------------------------------------
    async def _take(self) -> list[Taken]:
        if self._stopping.is_set():
            return []
        try:
            return await self._store.take_messages(self._strict, self._batch, TAKEN_FOR)
        except StoreError as error:
            log.warning("relay.retrying", target=self.target, reason=str(error))
            await self._first(self._clock.sleep(STORE_REST))
            return []

    async def _wait_for_more(self, until_idle: bool) -> bool:
        """False: there is nothing left, and nobody wants to wait for more."""
        try:
            ahead = await self._store.next_message(self._topics.keys())
        except StoreError:
            ahead = timedelta(seconds=STORE_REST)
        if ahead is None and until_idle and not self._busy:
            return False
        timeout = self._poll if ahead is None else min(max(ahead.total_seconds(), SOONEST), self._poll)
        await self._first(self._hear(timeout), self._free.wait())
        return True

    async def _hear(self, timeout: float) -> None:
        try:
            await self._store.wait_for_messages(self._topics.keys(), timeout)
        except StoreError:
            await self._clock.sleep(min(timeout, STORE_REST))

    async def _first(self, *waits: Coroutine[Any, Any, Any]) -> None:
        """Until one of them has ended, or the route is stopped."""
        tasks = [asyncio.ensure_future(wait) for wait in (*waits, self._stopping.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- delivering -------------------------------------------------------------------------------------------------
    async def _serve(self, taken: Sequence[Taken], began: float) -> None:
        """*began*: when they were asked for, by our own clock."""
        batch = MessageBatch(taken, self._topics)
        until = self._clock.monotonic() + DELIVER_WITHIN
        try:
            while ready := batch.next_wave(self._store_now(taken[0], began)):
                left = until - self._clock.monotonic()
                if left <= 0:
                    break
                batch.note(ready, await self._deliver([one.message for one in ready], left))
            self._judge(batch)
            await self._settle(batch)
        except asyncio.CancelledError:
            with suppress(StoreError, TimeoutError):  # others take them when their time is up
                async with asyncio.timeout(LAST_WORDS):
                    await self._write(batch)
            raise
        finally:
            self._busy -= 1
            self._free.set()

    def _store_now(self, taken: Taken, began: float) -> datetime:
        """The store's clock. It has said when these were taken, in the time until which they are ours."""
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
            failed = Undelivered("the transport failed; the relay's log tells why")
        return [failed] * len(messages)

    def _judge(self, batch: MessageBatch) -> None:
        """Whether anybody is there, and what is to be said about that."""
        if batch.away is None:
            if self._refusals:
                log.warning("relay.target_recovered", target=self.target, tries=self._refusals)
            self._refusals = 0
            return
        self._refusals += 1
        if self._refusals == 1:
            log.warning(
                "relay.target_unavailable", target=self.target, reason=batch.away, hint="its messages wait"
            )

    async def _settle(self, batch: MessageBatch) -> None:
        """Write down what became of them, for as long as they are ours."""
        until = self._clock.monotonic() + (TAKEN_FOR.total_seconds() - DELIVER_WITHIN)
        while True:
            try:
                await self._write(batch)
                break
            except StoreError as error:
                log.warning("relay.retrying", target=self.target, reason=str(error))
                if self._clock.monotonic() >= until:
                    return  # what was published will be published again
                await self._clock.sleep(STORE_REST)
        for taken, reason in batch.parked:
            one = taken.message
            log.warning("message.parked", topic=one.topic, message_id=one.id, reason=reason)

    async def _write(self, batch: MessageBatch) -> None:
        if batch.delivered:
            await self._store.messages_delivered(batch.delivered)
        failed = batch.put_off(self._rest, self._rng)
        if failed:
            await self._store.put_off_messages(failed)
        if batch.expired:
            ids = [one.message.id for one in batch.expired]
            await self._store.discard_messages(ids, "relay", EXPIRED)
            log.info("message.expired", target=self.target, messages=len(ids))
