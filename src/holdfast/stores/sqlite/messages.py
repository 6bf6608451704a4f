"""The statements of the outbox.

A relay reads the messages in line by number. A message that has an older one of its key before it goes behind, so that it is not
read again until the older one has left; the call that removes the older one lets the next few into line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from holdfast.jobs.moves import Kind
from holdfast.outbox.model import Message, MessageState, NewMessage, Taken
from holdfast.outbox.port import PutOff, Replayed
from holdfast.stores.outbox_encoding import Line, discarded, lines_of, message_columns
from holdfast.stores.outbox_encoding import message as shaped
from holdfast.stores.sqlite.move import SQL, Move
from holdfast.stores.sqlite.times import span

#: How many messages that are due are let into line at once, and how often more are read if too few of them are free.
_TOGETHER, _ROUNDS = 1000, 10
#: The largest integer of SQLite.
_LARGEST = 2**63 - 1


def publish(move: Move, messages: Sequence[NewMessage]) -> None:
    move.connection.executemany(SQL["publish"], [(*message_columns(one), move.now) for one in messages])


# -- relaying -----------------------------------------------------------------------------------------------------------
def take_messages(move: Move, topics: Mapping[str, bool], limit: int, length: timedelta) -> list[Taken]:
    for topic in topics:
        move.connection.execute(
            "UPDATE holdfast_outbox SET line = 0, not_before = NULL WHERE number IN (SELECT number FROM holdfast_outbox"
            " WHERE topic = ? AND line = 2 AND not_before <= ? ORDER BY not_before LIMIT ?)",
            (topic, move.now, _TOGETHER),
        )
    free = _free(move, topics, limit)
    move.connection.executemany(
        "UPDATE holdfast_outbox SET line = 2, not_before = ?, epoch = epoch + 1 WHERE number = ?",
        [(move.now + span(length), number) for number in free],
    )
    rows = [row for number in free for row in _rows(move, "WHERE number = ?", number)]
    return [Taken(shaped(row), row["epoch"]) for row in rows]


def _free(move: Move, topics: Mapping[str, bool], limit: int) -> list[int]:
    """Return the first in line that have no older message of their key before them. The others that were read go behind."""
    free: list[int] = []
    last, most = -1, limit
    for _ in range(_ROUNDS):
        seen: list[tuple[int, int]] = []
        for topic, strict in topics.items():
            seen += move.run("take_messages", topic=topic, strict=strict, last=last, most=most)
        seen = sorted(seen)[:most]
        free += [number for number, blocked in seen if not blocked]
        move.connection.executemany(
            "UPDATE holdfast_outbox SET line = 1 WHERE number = ?",
            [(number,) for number, blocked in seen if blocked],
        )
        if len(free) >= limit or len(seen) < most:
            break
        last, most = seen[-1][0], _TOGETHER
    return free[:limit]


def messages_delivered(move: Move, taken: Collection[Taken]) -> int:
    done = 0
    for one in taken:
        taken_as = {"number": one.message.number, "epoch": one.epoch}
        done += move.run("messages_delivered", **taken_as, now=move.now).rowcount or _is_repeated(
            move, "line = 4", **taken_as
        )
    _let_up(move, ((one.message.topic, one.message.key) for one in taken))
    return done


def put_off_messages(move: Move, failed: Collection[PutOff]) -> int:
    done = 0
    for one in failed:
        taken_as = {"number": one.taken.message.number, "epoch": one.taken.epoch}
        until = None if one.wait is None else move.now + span(one.wait)
        done += move.run(
            "put_off_messages",
            **taken_as,
            until=until,
            error=one.error,
            tried=one.tried,
            away=one.away,
            now=move.now,
        ).rowcount or _is_repeated(move, "failed_epoch = :epoch", **taken_as)
    parked = (one.taken.message for one in failed if one.wait is None)
    _let_up(move, ((message.topic, message.key) for message in parked))
    return done


def _is_repeated(move: Move, state: str, **taken_as: Any) -> int:
    """Return 1 if the message is in this state under this epoch: the call was sent before, and its answer was lost."""
    sql = f"SELECT count(*) FROM holdfast_outbox WHERE number = :number AND epoch = :epoch AND {state}"
    [(count,)] = move.connection.execute(sql, taken_as)
    return int(count)


def _let_up(move: Move, keys: Iterable[tuple[str, str | None]]) -> None:
    for topic, key in dict.fromkeys(keys):
        if key is not None:
            move.run("let_up", topic=topic, key=key)


def next_message(move: Move, topics: Collection[str]) -> timedelta | None:
    found = [move.run("next_message", topic=topic).fetchone()[0] for topic in topics]
    due = min((at for at in found if at is not None), default=None)
    return None if due is None else timedelta(microseconds=max(due - move.now, 0))


# -- people's moves -----------------------------------------------------------------------------------------------------
def park_message(move: Move, message_id: str, reason: str) -> bool:
    found = move.run("park_message", id=message_id, reason=reason, now=move.now).fetchall()
    _let_up(move, found)
    return bool(found)


def discard_messages(move: Move, message_ids: Collection[str], by: str, reason: str) -> int:
    done = 0
    for message_id in message_ids:
        for topic, key, error in move.run("discard_messages", id=message_id).fetchall():
            _let_up(move, [(topic, key)])
            move.record_no_job(Kind.discarded, discarded(message_id, topic, error, by, reason))
            done += 1
    return done


def replay_messages(move: Move, topic: str, first: int, last: int, limit: int) -> Replayed:
    bounds = {"first": min(first, _LARGEST), "last": min(last, _LARGEST)}
    rows = move.run("replay_messages", topic=topic, limit=limit, now=move.now, **bounds).fetchall()
    largest = max((number for (number,) in rows), default=0)
    return Replayed(len(rows), largest + 1 if len(rows) == limit and largest < last else None)


# -- reading ------------------------------------------------------------------------------------------------------------
def messages(
    move: Move,
    message_id: str | None,
    topic: str | None,
    state: MessageState | None,
    key: str | None,
    after: int | None,
    limit: int,
) -> list[Message]:
    conditions: list[str] = ["number > ?"]
    given: list[Any] = [after or 0]
    for column, value in (("id", message_id), ("topic", topic), ("key", key)):
        if value is not None:
            conditions.append(f"{column} = ?")
            given.append(value)
    if state is not None:
        conditions.append(f"line IN ({', '.join(str(int(line)) for line in lines_of(state))})")
    clause = f"WHERE {' AND '.join(conditions)} ORDER BY number LIMIT ?"
    return [shaped(row) for row in _rows(move, clause, *given, limit)]


def _rows(move: Move, clause: str, *parameters: Any) -> list[Any]:
    return move.rows(f"SELECT * FROM holdfast_outbox {clause}", *parameters)


# -- leaving ------------------------------------------------------------------------------------------------------------
def are_forgettable(move: Move, keep: timedelta) -> bool:
    """Return whether `forget_messages` has anything to do. Often it has not, and this costs no write."""
    before = move.now - span(keep)
    sql = "SELECT EXISTS (SELECT 1 FROM holdfast_outbox WHERE line = 4 AND settled_at <= ?)"
    return bool(move.connection.execute(sql, (before,)).fetchone()[0]) or bool(_stranded(move))


def forget_messages(move: Move, keep: timedelta, limit: int) -> int:
    _let_up(move, _stranded(move))
    return move.run("forget_messages", before=move.now - span(keep), limit=limit).rowcount


def _stranded(move: Move) -> list[tuple[str, str]]:
    """Return the keys that have messages behind a parked one, whose topic may not be strict any more.

    If it still is, the next relay that takes messages puts them back.
    """
    return move.connection.execute(
        "SELECT p.topic, p.key FROM holdfast_outbox p WHERE p.line = ? AND p.line = 3 AND p.key IS NOT NULL AND EXISTS"
        " (SELECT 1 FROM holdfast_outbox b WHERE b.topic = p.topic AND b.key = p.key AND b.key IS NOT NULL AND b.line = 1)"
        " LIMIT ?",
        (Line.PARKED, _TOGETHER),
    ).fetchall()
