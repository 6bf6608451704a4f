"""The outbox. `holdfast.outbox.port` has the contract, and `messages` the statements."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from holdfast.outbox.model import Message, MessageState, NewMessage, Taken
from holdfast.outbox.port import PutOff, Replayed
from holdfast.stores.sqlite import messages as work
from holdfast.stores.sqlite.database import Database
from holdfast.stores.sqlite.move import RunsMoves


class Outbox:
    """The messages of a database, which is a file or in RAM."""

    def __init__(self, database: RunsMoves) -> None:
        self._database = database

    async def publish(self, messages: Sequence[NewMessage]) -> None:
        await self._database.write_work(lambda move: work.publish(move, messages))

    def publish_sync(self, messages: Sequence[NewMessage]) -> None:
        self._database.write_sync(lambda move: work.publish(move, messages))

    async def take(self, topics: Mapping[str, bool], limit: int, span: timedelta) -> list[Taken]:
        if not self._is_due(topics):
            return []
        return await self._database.write(lambda move: work.take_messages(move, topics, limit, span))

    def _is_due(self, topics: Collection[str]) -> bool:
        """Return whether there may be a message to take. It takes microseconds and no lock."""
        return self._database.peek(lambda move: work.next_message(move, topics)) == timedelta()

    async def delivered(self, taken: Collection[Taken]) -> int:
        return await self._database.write(lambda move: work.messages_delivered(move, taken)) if taken else 0

    async def put_off(self, failed: Collection[PutOff]) -> int:
        return await self._database.write(lambda move: work.put_off_messages(move, failed)) if failed else 0

    async def next_due(self, topics: Collection[str]) -> timedelta | None:
        return self._database.peek(lambda move: work.next_message(move, topics))

    async def messages(
        self,
        *,
        message_id: str | None = None,
        topic: str | None = None,
        state: MessageState | None = None,
        key: str | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Message]:
        return self._database.peek(
            lambda move: work.messages(move, message_id, topic, state, key, after, limit)
        )

    async def replay(self, topic: str, first: int, last: int, limit: int) -> Replayed:
        return await self._database.write_work(
            lambda move: work.replay_messages(move, topic, first, last, limit)
        )

    async def park(self, message_id: str, reason: str) -> bool:
        return await self._database.write_work(lambda move: work.park_message(move, message_id, reason))

    async def discard(self, message_ids: Collection[str], by: str, reason: str) -> int:
        return await self._database.write_work(
            lambda move: work.discard_messages(move, message_ids, by, reason)
        )

    async def forget(self, keep: timedelta, limit: int) -> int:
        if not self._database.peek(lambda move: work.are_forgettable(move, keep)):
            return 0
        return await self._database.write(lambda move: work.forget_messages(move, keep, limit))

    async def wait(self, topics: Collection[str], timeout: float) -> None:
        await self._database.notifier.wait(lambda: self._is_due(topics), timeout)


class FileOutbox(Outbox):
    """The messages of a file. They can be published on a connection of the caller."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._file = database

    async def publish_in(self, connection: Any, messages: Sequence[NewMessage]) -> None:
        from holdfast.stores.sqlite.external_connections import on_callers_connection

        keep = self._file.move(lambda move: work.publish(move, messages))
        await on_callers_connection(connection, keep, self._file.path)

    def publish_in_sync(self, connection: Any, messages: Sequence[NewMessage]) -> None:
        from holdfast.stores.sqlite.external_connections import on_callers_connection_sync

        keep = self._file.move(lambda move: work.publish(move, messages))
        on_callers_connection_sync(connection, keep, self._file.path)
