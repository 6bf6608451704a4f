"""The part of the port that `holdfast.engine.outbox_store` describes: messages for others.

What waits and what is parked is in one table, what was published in another. The moves are functions of the schema, since
each is several statements that must see what the one before us did: they begin by locking the topic.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from holdfast.domain.moves import Kind
from holdfast.domain.outbox import Lag, Message, MessageState, NewMessage, Taken
from holdfast.engine.outbox_store import PutOff, Replayed
from holdfast.engine.ports import Clock
from holdfast.stores.outbox_encoding import discarded, lines_of, message_columns
from holdfast.stores.outbox_encoding import message as shaped
from holdfast.stores.postgres.api import ApiTables
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.move import Move
from holdfast.stores.postgres.notifier import Notifier
from holdfast.stores.postgres.outbox_marks import OutboxMarks
from holdfast.stores.postgres.times import moment

CHANNEL = "holdfast_outbox"
_WAITING = (
    "SELECT number, id, topic, key, body, headers, line, tries, unreached, error, created_at, not_before, parked_at AS settled_at"
    " FROM holdfast.outbox"
)
_SENT = (
    "SELECT number, id, topic, key, body, headers, 4::smallint AS line, tries, unreached, error, created_at,"
    " NULL::timestamptz AS not_before, published_at AS settled_at FROM holdfast.outbox_sent"
)


class Outbox(ApiTables):
    def __init__(self, lines: Connections, clock: Clock) -> None:
        super().__init__(lines, clock)
        self._message_bell = Notifier(lines, clock, CHANNEL)
        self._marks = OutboxMarks(clock)
        #: Up to when all was removed, until a round finds less than it could take: the next one begins here. What was
        #: removed cannot be vacuumed away while a transaction stays open, and would be walked over in every round.
        self._forgotten: datetime | None = None

    # -- publishing -------------------------------------------------------------------------------------------------
    async def publish(self, messages: Sequence[NewMessage]) -> None:
        if not messages:
            return
        given = publish_parameters(messages, notify=False)
        await self._runner.run("enqueue", lambda db: db.fetch(SQL["publish"], *given))
        self._message_bell.notify()

    # -- relaying ---------------------------------------------------------------------------------------------------
    async def take_messages(self, topics: Mapping[str, bool], limit: int, span: timedelta) -> list[Taken]:
        if not topics:
            return []
        epoch: int | None = None

        async def take(connection: asyncpg.Connection[Any]) -> list[asyncpg.Record]:
            nonlocal epoch
            again = epoch is not None
            epoch = epoch or await connection.fetchval("SELECT nextval('holdfast.epoch')")
            mark = await self._marks.before_take(connection, topics)
            given = list(topics), list(topics.values()), limit, span, epoch, again, *mark
            return await connection.fetch(SQL["take_messages"], *given)

        rows = await self._runner.run("relay", take)
        self._marks.took(topics, [row["number"] for row in rows])
        return [Taken(_waiting(row), row["epoch"]) for row in rows]

    async def messages_delivered(self, taken: Collection[Taken]) -> int:
        if not taken:
            return 0
        given = [one.message.number for one in taken], [one.epoch for one in taken]
        topics = {one.message.topic for one in taken}

        async def deliver(connection: asyncpg.Connection[Any]) -> int:
            mark = self._marks.of(topics)  # not before: a new connection drops the marks
            [(done,)] = await connection.fetch(SQL["messages_delivered"], *given, mark.seen, mark.lowest)
            return int(done)

        return await self._runner.run("relay", deliver)

    async def put_off_messages(self, failed: Collection[PutOff]) -> int:
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
        [(done,)] = await self._runner.run("relay", lambda db: db.fetch(SQL["put_off_messages"], *given))
        if timedelta() in given[2]:  # given back: another relay may have them
            self._message_bell.notify()
        return int(done)

    async def next_message(self, topics: Collection[str]) -> timedelta | None:
        ahead: timedelta | None = await self._runner.run(
            "relay", lambda db: db.fetchval(SQL["next_message"], list(topics), *self._marks.of(topics))
        )
        return ahead

    async def wait_for_messages(self, topics: Collection[str], timeout: float) -> None:
        await self._message_bell.wait(timeout, who=frozenset(topics))

    # -- people's moves ---------------------------------------------------------------------------------------------
    async def replay_messages(self, topic: str, first: int, last: int, limit: int) -> Replayed:
        given = topic, first, last, limit
        [row] = await self._runner.run("people", lambda db: db.fetch(SQL["replay_messages"], *given))
        self._message_bell.notify()
        done, largest = row
        return Replayed(done, largest + 1 if done == limit and largest < last else None)

    async def park_message(self, message_id: str, reason: str) -> bool:
        parked = await self._runner.run(
            "people", lambda db: db.fetchval(SQL["park_message"], message_id, reason)
        )
        self._message_bell.notify()  # for those that were behind it
        return bool(parked)

    async def discard_messages(self, message_ids: Collection[str], by: str, reason: str) -> int:
        ids, found = list(message_ids), 0

        async def discard(move: Move) -> int:
            nonlocal found
            db = move.connection
            topics = await db.fetchval(
                "SELECT array_agg(DISTINCT topic) FROM holdfast.outbox WHERE id = ANY ($1::text[])", ids
            )
            if topics is None:
                return found  # they were there, are gone, and our answer was lost
            await db.execute("SELECT holdfast.lock_topics($1::text[])", topics)
            gone = await move.run("discard_messages", ids)
            found = found or len(gone)
            keyed = [row["topic"] for row in gone], [row["key"] for row in gone]
            await db.execute("SELECT holdfast.let_up($1::text[], $2::text[])", *keyed)
            for row in gone:
                meta = discarded(row["id"], row["topic"], row["error"], by, reason)
                await move.record_no_job(Kind.discarded, meta)
            return found

        answer = await self._write("people", discard)
        self._message_bell.notify()  # for those that were behind them
        return answer

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
        conditions: list[str] = ["number > $1"]
        given: list[Any] = [after or 0, limit]
        for column, value in (("topic", topic), ("key", key)):
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
        rows = await self._rows(f"SELECT * FROM ({sql}) m ORDER BY number LIMIT $2", *given)
        return [shaped(row, moment) for row in rows]

    async def message(self, message_id: str) -> Message | None:
        sql = f"{_WAITING} WHERE id = $1::text UNION ALL {_SENT} WHERE id = $1::text"
        rows = await self._rows(sql, message_id)
        return shaped(rows[0], moment) if rows else None

    async def lags(self) -> list[Lag]:
        rows = await self._rows(SQL["lags"])
        return [
            Lag(row["topic"], row["waiting"], row["parked"], row["oldest"] if row["waiting"] else None)
            for row in rows
        ]

    # -- leaving ----------------------------------------------------------------------------------------------------
    async def forget_messages(self, keep: timedelta, limit: int) -> int:
        async def forget(connection: asyncpg.Connection[Any]) -> int:
            await connection.fetch(SQL["let_up"])
            rows = await connection.fetch(SQL["forget_messages"], keep, limit, self._forgotten)
            is_full = 0 < limit == len(rows)
            self._forgotten = max(row["published_at"] for row in rows) if is_full else None
            return len(rows)

        return await self._runner.run("maintenance", forget)


def publish_parameters(messages: Sequence[NewMessage], *, notify: bool) -> tuple[Any, ...]:
    return (*map(list, zip(*map(message_columns, messages), strict=True)), notify)


def _waiting(row: asyncpg.Record) -> Message:
    return shaped({**row, "settled_at": row["parked_at"]}, moment)
