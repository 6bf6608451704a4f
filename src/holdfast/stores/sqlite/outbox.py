"""The part of the port that `holdfast.engine.outbox_store` describes; `messages` does the work."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta

from holdfast.domain.outbox import Lag, Message, MessageState, NewMessage, Taken
from holdfast.engine.outbox_store import PutOff, Replayed
from holdfast.stores.sqlite import messages as work
from holdfast.stores.sqlite.api import ApiTables


class Outbox(ApiTables):
    @abstractmethod
    async def _wait_until(self, happened: Callable[[], bool], timeout: float) -> None: ...

    async def publish(self, messages: Sequence[NewMessage]) -> None:
        await self._write_work(lambda move: work.publish(move, messages))

    async def take_messages(self, topics: Mapping[str, bool], limit: int, span: timedelta) -> list[Taken]:
        if not self._is_due(topics):
            return []
        return await self._write(lambda move: work.take_messages(move, topics, limit, span))

    def _is_due(self, topics: Collection[str]) -> bool:
        """Whether there may be something to take: microseconds, and no lock."""
        return self._peek(lambda move: work.next_message(move, topics)) == timedelta()

    async def messages_delivered(self, taken: Collection[Taken]) -> int:
        return await self._write(lambda move: work.messages_delivered(move, taken)) if taken else 0

    async def put_off_messages(self, failed: Collection[PutOff]) -> int:
        return await self._write(lambda move: work.put_off_messages(move, failed)) if failed else 0

    async def next_message(self, topics: Collection[str]) -> timedelta | None:
        return self._peek(lambda move: work.next_message(move, topics))

    async def messages(
        self,
        *,
        topic: str | None = None,
        state: MessageState | None = None,
        key: str | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Message]:
        return self._peek(lambda move: work.messages(move, topic, state, key, after, limit))

    async def message(self, message_id: str) -> Message | None:
        return self._peek(lambda move: work.message_of(move, message_id))

    async def replay_messages(self, topic: str, first: int, last: int, limit: int) -> Replayed:
        return await self._write_work(lambda move: work.replay_messages(move, topic, first, last, limit))

    async def park_message(self, message_id: str, reason: str) -> bool:
        return await self._write_work(lambda move: work.park_message(move, message_id, reason))

    async def discard_messages(self, message_ids: Collection[str], by: str, reason: str) -> int:
        return await self._write_work(lambda move: work.discard_messages(move, message_ids, by, reason))

    async def lags(self) -> list[Lag]:
        return self._peek(work.lags)

    async def forget_messages(self, keep: timedelta, limit: int) -> int:
        if not self._peek(lambda move: work.are_forgettable(move, keep)):
            return 0
        return await self._write(lambda move: work.forget_messages(move, keep, limit))

    async def wait_for_messages(self, topics: Collection[str], timeout: float) -> None:
        await self._wait_until(lambda: self._is_due(topics), timeout)
