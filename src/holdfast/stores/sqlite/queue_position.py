"""Read the queue position of a job by one statement, so that all of it was true at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from datetime import datetime, timedelta

from holdfast.jobs.job import JobId, Lane
from holdfast.jobs.moves import Kind
from holdfast.jobs.queue_position import LAST_MOVE, MOST_AHEAD, LastMove, Place, QueuePosition, Use
from holdfast.stores.encoding import from_json, shown, to_json
from holdfast.stores.sqlite.move import SQL
from holdfast.stores.sqlite.phases import DEFERRED, READY
from holdfast.stores.sqlite.times import micros, moment


def queue_position(
    reader: sqlite3.Connection, job_id: JobId, scopes: Collection[str], now: datetime
) -> QueuePosition | None:
    asked = {
        "uid": job_id,
        "most": MOST_AHEAD,
        "last_move": int(LAST_MOVE),
        "scopes": to_json(list(scopes)),
        "now": micros(now),
    }
    row = reader.execute(SQL["queue_position"], asked).fetchone()
    if row is None:
        return None
    queue, task, dependency, shard, fair, phase, ahead, holder, slots, last, use = row
    place = None
    if phase == READY:
        place = Place.LINE if holder is None else Place.KEY
    elif phase == DEFERRED:
        place = Place.LATER
    return QueuePosition(
        lane=Lane(queue, task, dependency, shard, bool(fair)),
        place=place,
        now=now,
        ahead=ahead if place is Place.LINE else None,
        holder=holder,
        key_slots=slots or 1,
        last=None if last is None else _last(last),
        use={scope: Use(running, timedelta(microseconds=ahead)) for scope, running, ahead in from_json(use)},
    )


def _last(text: str) -> LastMove:
    kind, at, (_, _, attempt, meta) = from_json(text)
    return LastMove(Kind(kind).name, moment(at), attempt, shown(meta or {}))
