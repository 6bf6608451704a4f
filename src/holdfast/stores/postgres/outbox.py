"""The outbox. `holdfast.outbox.port` has the contract.

Messages that wait or are parked are in one table, published ones in another. The moves are functions of the schema, because each
is several statements that must see what a call before them has done: a function begins by locking the topic.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from holdfast.jobs.moves import Kind
from holdfast.outbox.model import Message, MessageState, NewMessage, Taken
from holdfast.outbox.port import PutOff, Replayed
from holdfast.stores.outbox_encoding import discarded, lines_of, message_columns
from holdfast.stores.outbox_encoding import message as shaped
from holdfast.stores.postgres.database import Database
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.move import Move
from holdfast.stores.postgres.notifier import Notifier
from holdfast.stores.postgres.outbox_marks import OutboxMarks

CHANNEL = "holdfast_outbox"
_WAITING = (
    "SELECT number, id, topic, key, body, headers, line, tries, unreached, error, created_at, not_before, parked_at AS settled_at"
    " FROM holdfast.outbox"
)
_SENT = (
    "SELECT number, id, topic, key, body, headers, 4::smallint AS line, tries, unreached, error, created_at,"
    " NULL::timestamptz AS not_before, published_at AS settled_at FROM holdfast.outbox_sent"
)


class Outbox:
    def __init__(self, database: Database) -> None:
        self._database = database
        self.notifier = Notifier(database.connections, database.clock, CHANNEL)
        self.marks = OutboxMarks(database.clock)
        #: Where the next round of `forget` begins, while the last one deleted as many as it could. Deleted rows cannot be
        #: vacuumed while a transaction stays open, and would be walked over in every round.
        self._forgotten: datetime | None = None

    # -- publishing -------------------------------------------------------------------------------------------------
    async def publish(self, messages: Sequence[NewMessage]) -> None:
        if not messages:
            return
        given = publish_parameters(messages, notify=False)
        await self._database.run("enqueue", lambda db: db.fetch(SQL["publish"], *given))
        self.notifier.notify()

    async def publish_in(self, connection: Any, messages: Sequence[NewMessage]) -> None:
        from holdfast.stores.postgres.external_connections import publish_on

        await publish_on(connection, publish_parameters(messages, notify=True), self._database.url)

    def publish_in_sync(self, connection: Any, messages: Sequence[NewMessage]) -> None:
        from holdfast.stores.postgres.external_connections import publish_on_sync

        publish_on_sync(connection, publish_parameters(messages, notify=True), self._database.url)

    # -- relaying ---------------------------------------------------------------------------------------------------
    async def take(self, topics: Mapping[str, bool], limit: int, span: timedelta) -> list[Taken]:
        if not topics:
            return []
        epoch: int | None = None

        async def take(connection: asyncpg.Connection[Any]) -> list[asyncpg.Record]:
            nonlocal epoch
            again = epoch is not None
            epoch = epoch or await connection.fetchval("SELECT nextval('holdfast.epoch')")
            mark = await self.marks.before_take(connection, topics)
            given = list(topics), list(topics.values()), limit, span, epoch, again, *mark
            return await connection.fetch(SQL["take_messages"], *given)

        rows = await self._database.run("relay", take)
        self.marks.took(topics, [row["number"] for row in rows])
        return [Taken(_waiting(row), row["epoch"]) for row in rows]

    async def delivered(self, taken: Collection[Taken]) -> int:
        if not taken:
            return 0
        given = [one.message.number for one in taken], [one.epoch for one in taken]
        topics = {one.message.topic for one in taken}

        async def deliver(connection: asyncpg.Connection[Any]) -> int:
            mark = self.marks.of(topics)  # not before: a new connection drops the marks
            [(done,)] = await connection.fetch(SQL["messages_delivered"], *given, mark.seen, mark.lowest)
            return int(done)

        return await self._database.run("relay", deliver)

    async def put_off(self, failed: Collection[PutOff]) -> int:
        if not failed:
            return 0
        given = (
            [one.taken.message.number for one in failed],
            [one.taken.epoch for one in failed],
            [one.wait for one in failed],
            [one.error for one in failed],
            [one.tried for one in failed],
            [one.away for one in failed],
        )
        [(done,)] = await self._database.run("relay", lambda db: db.fetch(SQL["put_off_messages"], *given))
        if timedelta() in given[2]:  # given back: another relay may have them
            self.notifier.notify()
        return int(done)

    async def next_due(self, topics: Collection[str]) -> timedelta | None:
        ahead: timedelta | None = await self._database.run(
            "relay", lambda db: db.fetchval(SQL["next_message"], list(topics), *self.marks.of(topics))
        )
        return ahead

    async def wait(self, topics: Collection[str], timeout: float) -> None:
        await self.notifier.wait(timeout, who=frozenset(topics))

    # -- people's moves ---------------------------------------------------------------------------------------------
    async def replay(self, topic: str, first: int, last: int, limit: int) -> Replayed:
        given = topic, first, last, limit
        [row] = await self._database.run("people", lambda db: db.fetch(SQL["replay_messages"], *given))
        self.notifier.notify()
        done, largest = row
        return Replayed(done, largest + 1 if done == limit and largest < last else None)

    async def park(self, message_id: str, reason: str) -> bool:
        parked = await self._database.run(
            "people", lambda db: db.fetchval(SQL["park_message"], message_id, reason)
        )
        self.notifier.notify()  # for those that were behind it
        return bool(parked)

    async def discard(self, message_ids: Collection[str], by: str, reason: str) -> int:
        ids, found = list(message_ids), 0

        async def discard(move: Move) -> int:
            nonlocal found
            db = move.connection
            topics = await db.fetchval(
                "SELECT array_agg(DISTINCT topic) FROM holdfast.outbox WHERE id = ANY ($1::text[])", ids
            )
            if topics is None:
                return found  # a call before deleted them, and its answer was lost
            await db.execute("SELECT holdfast.lock_topics($1::text[])", topics)
            gone = await move.run("discard_messages", ids)
            found = found or len(gone)
            keyed = [row["topic"] for row in gone], [row["key"] for row in gone]
            await db.execute("SELECT holdfast.let_up($1::text[], $2::text[])", *keyed)
            for row in gone:
                meta = discarded(row["id"], row["topic"], row["error"], by, reason)
                await move.transaction.record(Kind.discarded, meta)
            return found

        answer = await self._database.write("people", discard)
        self.notifier.notify()  # for those that were behind them
        return answer

    # -- reading ----------------------------------------------------------------------------------------------------
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
        conditions: list[str] = ["number > $1"]
        given: list[Any] = [after or 0, limit]
        for column, value in (("id", message_id), ("topic", topic), ("key", key)):
            if value is not None:
                given.append(value)
                conditions.append(f"{column} = ${len(given)}::text")
        where = " AND ".join(conditions)
        if state is not None and state is not MessageState.PUBLISHED:
            lines = ", ".join(str(int(line)) for line in lines_of(state))
            parts = [f"{_WAITING} WHERE {where} AND line IN ({lines})"]
        else:
            parts = [f"{_SENT} WHERE {where}"]
            parts += [] if state else [f"{_WAITING} WHERE {where}"]
        sql = " UNION ALL ".join(f"({part} ORDER BY number LIMIT $2)" for part in parts)
        rows = await self._database.rows(f"SELECT * FROM ({sql}) m ORDER BY number LIMIT $2", *given)
        return [shaped(row) for row in rows]

    # -- leaving ----------------------------------------------------------------------------------------------------
    async def forget(self, keep: timedelta, limit: int) -> int:
        async def forget(connection: asyncpg.Connection[Any]) -> int:
            await connection.fetch(SQL["let_up"])
            rows = await connection.fetch(SQL["forget_messages"], keep, limit, self._forgotten)
            is_full = 0 < limit == len(rows)
            self._forgotten = max(row["published_at"] for row in rows) if is_full else None
            return len(rows)

        return await self._database.run("maintenance", forget)


def publish_parameters(messages: Sequence[NewMessage], *, notify: bool) -> tuple[Any, ...]:
    return (*map(list, zip(*map(message_columns, messages), strict=True)), notify)


def _waiting(row: asyncpg.Record) -> Message:
    return shaped({**row, "settled_at": row["parked_at"]})
