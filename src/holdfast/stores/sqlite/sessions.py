"""The sessions of workers. They expire by the monotonic clock, which cannot be set back."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from holdfast import __version__
from holdfast.jobs.job import Lease, Session, SessionId
from holdfast.stores.encoding import to_json
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.times import span


def open_session(move: Move, worker: str, ttl: timedelta, queues: Collection[str] | None) -> Session:
    served = None if queues is None else to_json(sorted(queues))
    [(number,)] = move.connection.execute(
        "INSERT INTO holdfast_session (worker, boot, ttl, started_at, expires_mono, queues, version)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id",
        (worker, move.boot, span(ttl), move.now, move.mono + span(ttl), served, __version__),
    ).fetchall()
    return Session(id=SessionId(number), worker=worker, ttl=ttl)


def extend(move: Move, session: Session) -> bool:
    return move.run("extend", session=session.id, boot=move.boot, mono=move.mono).rowcount == 1


def close_session(move: Move, session: Session) -> None:
    move.connection.execute("UPDATE holdfast_session SET expires_mono = 0 WHERE id = ?", (session.id,))


def report_waiting(move: Move, session: Session, handlers: int) -> None:
    move.connection.execute("UPDATE holdfast_session SET waiting = ? WHERE id = ?", (handlers, session.id))


def held(move: Move, session: Session) -> set[Lease]:
    rows = move.connection.execute(
        "SELECT uid, epoch FROM holdfast_job WHERE phase = 2 AND session = ?", (session.id,)
    )
    return {Lease(uid, epoch) for uid, epoch in rows}
