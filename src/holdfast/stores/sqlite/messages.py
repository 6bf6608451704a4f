"""Messages for others: kept, taken, delivered, put off, parked, replayed.

Who stands in line is looked at by number. What has something of its key before it steps behind, so that nobody looks at it
again until that is gone; the caller that removes it lets the next few into line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from holdfast.domain.moves import Kind
from holdfast.domain.outbox import Lag, Message, MessageState, NewMessage, Taken
from holdfast.engine.outbox_store import PutOff, Replayed
from holdfast.stores.outbox_encoding import Line, discarded, lines_of, message_columns
from holdfast.stores.outbox_encoding import message as shaped
from holdfast.stores.sqlite.move import SQL, Move
from holdfast.stores.sqlite.times import moment, span

#: How many that are due are let into line at once, and how many are looked at before who takes comes back with what it has.
_TOGETHER, _ROUNDS = 1000, 10
#: What SQLite can count to.
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
    return [Taken(shaped(row, moment), row["epoch"]) for row in rows]


def _free(move: Move, topics: Mapping[str, bool], limit: int) -> list[int]:
    """The first in line of whose key nothing is before them; the others that were seen step behind."""
    free: list[int] = []
    last, look = -1, limit
    for _ in range(_ROUNDS):
        seen: list[tuple[int, int]] = []
        for topic, strict in topics.items():
            seen += move.run("take_messages", topic=topic, strict=strict, last=last, look=look)
        seen = sorted(seen)[:look]
        free += [number for number, blocked in seen if not blocked]
        move.connection.executemany(
            "UPDATE holdfast_outbox SET line = 1 WHERE number = ?",
            [(number,) for number, blocked in seen if blocked],
        )
        if len(free) >= limit or len(seen) < look:
            break
        last, look = seen[-1][0], _TOGETHER
    return free[:limit]


def messages_delivered(move: Move, taken: Collection[Taken]) -> int:
    done = 0
    for one in taken:
        told = {"number": one.message.number, "epoch": one.epoch}
        done += move.run("messages_delivered", **told, now=move.now).rowcount or _is_so(
            move, "line = 4", **told
        )
    _let_up(move, ((one.message.topic, one.message.key) for one in taken))
    return done


def put_off_messages(move: Move, failed: Collection[PutOff]) -> int:
    done = 0
    for one in failed:
        told = {"number": one.taken.message.number, "epoch": one.taken.epoch}
        until = None if one.wait is None else move.now + span(one.wait)
        done += move.run(
            "put_off_messages",
            **told,
            until=until,
            error=one.error,
            tried=one.tried,
            away=one.away,
            now=move.now,
        ).rowcount or _is_so(move, "failed_epoch = :epoch", **told)
    parked = (one.taken.message for one in failed if one.wait is None)
    _let_up(move, ((message.topic, message.key) for message in parked))
    return done


def _is_so(move: Move, what: str, **told: Any) -> int:
    """Whether this was told under this epoch before, and its answer was lost."""
    sql = f"SELECT count(*) FROM holdfast_outbox WHERE number = :number AND epoch = :epoch AND {what}"
    [(count,)] = move.connection.execute(sql, told)
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
            move.record_no_job(Kind.discarded, dict(discarded(message_id, topic, error, by, reason)))
            done += 1
    return done


def replay_messages(move: Move, topic: str, first: int, last: int, limit: int) -> Replayed:
    bounds = {"first": min(first, _LARGEST), "last": min(last, _LARGEST)}
    rows = move.run("replay_messages", topic=topic, limit=limit, now=move.now, **bounds).fetchall()
    largest = max((number for (number,) in rows), default=0)
    return Replayed(len(rows), largest + 1 if len(rows) == limit and largest < last else None)


# -- looking ------------------------------------------------------------------------------------------------------------
def messages(
    move: Move,
    topic: str | None,
    state: MessageState | None,
    key: str | None,
    after: int | None,
    limit: int,
) -> list[Message]:
    conditions: list[str] = ["number > ?"]
    given: list[Any] = [after or 0]
    for column, value in (("topic", topic), ("key", key)):
        if value is not None:
            conditions.append(f"{column} = ?")
            given.append(value)
    if state is not None:
        conditions.append(f"line IN ({', '.join(str(int(line)) for line in lines_of(state))})")
    clause = f"WHERE {' AND '.join(conditions)} ORDER BY number LIMIT ?"
    return [shaped(row, moment) for row in _rows(move, clause, *given, limit)]


def message_of(move: Move, message_id: str) -> Message | None:
    return next((shaped(row, moment) for row in _rows(move, "WHERE id = ?", message_id)), None)


def _rows(move: Move, clause: str, *parameters: Any) -> list[Any]:
    return move.rows(f"SELECT * FROM holdfast_outbox {clause}", *parameters)


def lags(move: Move) -> list[Lag]:
    return [
        Lag(
            topic,
            waiting,
            parked,
            None if since is None else timedelta(microseconds=max(move.now - since, 0)),
        )
        for topic, waiting, parked, since in move.run("lags")
    ]


# -- leaving ------------------------------------------------------------------------------------------------------------
def are_forgettable(move: Move, keep: timedelta) -> bool:
    """Whether there is anything to do for `forget_messages`: most of the time there is not, and looking costs no write."""
    before = move.now - span(keep)
    sql = "SELECT EXISTS (SELECT 1 FROM holdfast_outbox WHERE line = 4 AND settled_at <= ?)"
    return bool(move.connection.execute(sql, (before,)).fetchone()[0]) or bool(_stranded(move))


def forget_messages(move: Move, keep: timedelta, limit: int) -> int:
    _let_up(move, _stranded(move))
    return move.run("forget_messages", before=move.now - span(keep), limit=limit).rowcount


def _stranded(move: Move) -> list[tuple[str, str]]:
    """Keys of which somebody is behind a parked message: its topic may be strict no more. Where it still is, the relay that takes
    next puts them back."""
    return move.connection.execute(
        "SELECT p.topic, p.key FROM holdfast_outbox p WHERE p.line = ? AND p.line = 3 AND p.key IS NOT NULL AND EXISTS"
        " (SELECT 1 FROM holdfast_outbox b WHERE b.topic = p.topic AND b.key = p.key AND b.key IS NOT NULL AND b.line = 1)"
        " LIMIT ?",
        (Line.PARKED, _TOGETHER),
    ).fetchall()
