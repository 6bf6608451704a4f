"""Messages for others, here."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from holdfast.domain.moves import Kind
from holdfast.domain.outbox import Lag, Message, MessageState, NewMessage, Taken
from holdfast.engine.outbox_store import PutOff, Replayed
from holdfast.engine.ports import Clock
from holdfast.stores.outbox_encoding import discarded


@dataclass(slots=True)
class _Kept:
    message: Message
    since: datetime  #: when it began to wait: created or replayed
    epoch: int = 0
    failed_epoch: int = 0  #: under which its last failed try was told: told again, it is not counted again


class Outbox(ABC):
    """The part of the port that `holdfast.engine.outbox_store` describes."""

    @abstractmethod
    def _tell(self, kind: Kind, **meta: Any) -> None:
        """An event of no job."""

    def __init__(self, clock: Clock) -> None:
        self._outbox_clock = clock
        self._outbox: dict[int, _Kept] = {}  #: by number, in no order
        self._outbox_ids: dict[str, int] = {}
        self._outbox_numbers = count(1)
        self._outbox_bell = asyncio.Event()
        self._outbox_strict: dict[str, bool] = {}  #: as those who take have said last
        self._with_move: list[NewMessage] = []  #: told by a hook of the move that is being made

    # -- publishing -------------------------------------------------------------------------------------------------
    async def publish(self, messages: Sequence[NewMessage]) -> None:
        self.publish_sync(messages)
        self._outbox_bell.set()

    def publish_sync(self, messages: Sequence[NewMessage]) -> None:
        # From any thread: the bell belongs to the loop's, and rings with its next write.
        now = self._outbox_clock.now()
        for new in messages:
            if new.id in self._outbox_ids:
                continue
            message = Message(
                number=next(self._outbox_numbers),
                id=new.id,
                topic=new.topic,
                key=new.key,
                body=bytes(new.body),
                headers=dict(new.headers),
                state=MessageState.WAITING,
                tries=0,
                error=None,
                created_at=now,
                not_before=None,
                settled_at=None,
            )
            self._outbox[message.number] = _Kept(message, since=now)
            self._outbox_ids[new.id] = message.number

    def add_to_move(self, messages: Sequence[NewMessage]) -> None:
        """Publish them when the move that is being made is done, or not at all."""
        self._with_move += messages

    def publish_with_move(self) -> None:
        told, self._with_move = self._with_move, []
        self.publish_sync(told)

    def roll_back_messages(self) -> None:
        self._with_move = []

    def notify_relays(self) -> None:
        self._outbox_bell.set()

    def has_message(self, message_id: str) -> bool:
        return message_id in self._outbox_ids

    # -- relaying ---------------------------------------------------------------------------------------------------
    def _in_order(self) -> Iterator[_Kept]:
        return (self._outbox[number] for number in sorted(self._outbox))

    async def take_messages(self, topics: Mapping[str, bool], limit: int, span: timedelta) -> list[Taken]:
        now, taken = self._outbox_clock.now(), list[Taken]()
        self._outbox_strict |= topics
        blocked: set[tuple[str, str | None]] = set()
        for kept in self._in_order():
            message = kept.message
            if message.topic not in topics or message.state is MessageState.PUBLISHED:
                continue
            key = message.topic, message.key
            if message.state is MessageState.PARKED:
                if topics[message.topic]:
                    blocked.add(key)
            elif not _is_due(message, now):
                blocked.add(key)
            elif message.key is None or key not in blocked:
                kept.epoch += 1
                kept.message = replace(message, not_before=now + span)
                taken.append(Taken(kept.message, kept.epoch))
                if len(taken) == limit:
                    break
        return taken

    async def messages_delivered(self, taken: Collection[Taken]) -> int:
        return sum([self._deliver(one) for one in taken])

    def _deliver(self, taken: Taken) -> bool:
        kept = self._held(taken)
        if kept is None:
            return False
        if kept.message.state is not MessageState.PUBLISHED:
            self._settle(kept, MessageState.PUBLISHED, kept.message.error)
        return True

    async def put_off_messages(self, failed: Collection[PutOff]) -> int:
        return sum([self._put_off(one) for one in failed])

    def _put_off(self, failed: PutOff) -> bool:
        kept = self._held(failed.taken)
        if kept is None or (
            kept.message.state is not MessageState.WAITING and kept.failed_epoch != kept.epoch
        ):
            return False
        if kept.failed_epoch == kept.epoch:
            return True
        kept.failed_epoch = kept.epoch
        message = replace(
            kept.message,
            tries=kept.message.tries + failed.tried,
            unreached=kept.message.unreached + failed.away,
        )
        error = failed.error or message.error
        if failed.wait is None:
            kept.message = message
            self._settle(kept, MessageState.PARKED, error)
        else:
            until = self._outbox_clock.now() + failed.wait
            kept.message = replace(message, error=error, not_before=until)
        return True

    def _held(self, taken: Taken) -> _Kept | None:
        kept = self._outbox.get(taken.message.number)
        return kept if kept is not None and kept.epoch == taken.epoch else None

    def _settle(self, kept: _Kept, state: MessageState, error: str | None) -> None:
        now = self._outbox_clock.now()
        kept.message = replace(kept.message, state=state, error=error, not_before=None, settled_at=now)
        self._outbox_bell.set()  # for those that were behind it

    async def next_message(self, topics: Collection[str]) -> timedelta | None:
        """Of those that nothing of their key is before: a relay asks for the ones behind it when that has gone."""
        now, seen = self._outbox_clock.now(), set[tuple[str, str]]()
        ahead: timedelta | None = None
        for kept in self._in_order():
            message = kept.message
            if message.topic not in topics or message.state is MessageState.PUBLISHED:
                continue
            is_parked = message.state is MessageState.PARKED
            if is_parked and not self._outbox_strict.get(message.topic):
                continue
            if message.key is not None:
                if (message.topic, message.key) in seen:
                    continue
                seen.add((message.topic, message.key))
            if is_parked:
                continue
            wait = max((message.not_before or now) - now, timedelta())
            ahead = wait if ahead is None else min(ahead, wait)
        return ahead

    async def wait_for_messages(self, topics: Collection[str], timeout: float) -> None:
        if await self.next_message(topics) == timedelta():
            return
        try:
            async with asyncio.timeout(timeout):
                await self._outbox_bell.wait()
        except TimeoutError:
            return
        finally:
            self._outbox_bell.clear()

    # -- people's moves ---------------------------------------------------------------------------------------------
    async def park_message(self, message_id: str, reason: str) -> bool:
        kept = self._outbox.get(self._outbox_ids.get(message_id, 0))
        if kept is None or kept.message.state is not MessageState.WAITING:
            return False
        self._settle(kept, MessageState.PARKED, reason)
        return True

    async def discard_messages(self, message_ids: Collection[str], by: str, reason: str) -> int:
        return sum([self._discard(message_id, by, reason) for message_id in message_ids])

    def _discard(self, message_id: str, by: str, reason: str) -> bool:
        kept = self._outbox.get(self._outbox_ids.get(message_id, 0))
        if kept is None or kept.message.state is not MessageState.PARKED:
            return False
        del self._outbox[kept.message.number], self._outbox_ids[message_id]
        self._tell(
            Kind.discarded, **discarded(message_id, kept.message.topic, kept.message.error, by, reason)
        )
        self._outbox_bell.set()  # for those that were behind it
        return True

    async def replay_messages(self, topic: str, first: int, last: int, limit: int) -> Replayed:
        ended = [
            kept
            for kept in self._in_order()
            if kept.message.topic == topic
            and kept.message.state is not MessageState.WAITING
            and first <= kept.message.number <= last
        ][:limit]
        for kept in ended:
            kept.since, kept.epoch = self._outbox_clock.now(), kept.epoch + 1
            kept.message = replace(
                kept.message, state=MessageState.WAITING, tries=0, unreached=0, error=None, settled_at=None
            )
        self._outbox_bell.set()
        largest = ended[-1].message.number if ended else last
        return Replayed(len(ended), largest + 1 if len(ended) == limit and largest < last else None)

    # -- looking ----------------------------------------------------------------------------------------------------
    async def messages(
        self,
        *,
        topic: str | None = None,
        state: MessageState | None = None,
        key: str | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Message]:
        return [
            kept.message
            for kept in self._in_order()
            if kept.message.number > (after or 0)
            and topic in (None, kept.message.topic)
            and state in (None, kept.message.state)
            and key in (None, kept.message.key)
        ][:limit]

    async def message(self, message_id: str) -> Message | None:
        kept = self._outbox.get(self._outbox_ids.get(message_id, 0))
        return None if kept is None else kept.message

    async def lags(self) -> list[Lag]:
        now, lags = self._outbox_clock.now(), dict[str, Lag]()
        for kept in self._in_order():
            topic, state = kept.message.topic, kept.message.state
            if state is MessageState.PUBLISHED:
                continue
            lag = lags.get(topic, Lag(topic, 0, 0, None))
            if state is MessageState.PARKED:
                lags[topic] = lag._replace(parked=lag.parked + 1)
            else:
                oldest = max(now - kept.since, lag.oldest or timedelta())
                lags[topic] = lag._replace(waiting=lag.waiting + 1, oldest=oldest)
        return sorted(lags.values())

    # -- leaving ----------------------------------------------------------------------------------------------------
    async def forget_messages(self, keep: timedelta, limit: int) -> int:
        before = self._outbox_clock.now() - keep
        gone = [
            kept.message
            for kept in self._in_order()
            if kept.message.state is MessageState.PUBLISHED
            and kept.message.settled_at is not None
            and kept.message.settled_at <= before
        ][:limit]
        for message in gone:
            del self._outbox[message.number], self._outbox_ids[message.id]
        return len(gone)


def _is_due(message: Message, now: datetime) -> bool:
    return message.not_before is None or message.not_before <= now
