"""Where schedules stand: one row each, moved on by compare-and-set, so that of many processes one enqueues (E39)."""

from __future__ import annotations

from datetime import datetime

from holdfast.engine.lanestore import Tick
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.times import micros, moment


def ticks(move: Move) -> list[Tick]:
    rows = move.connection.execute("SELECT name, last, due FROM holdfast_schedule_tick ORDER BY name")
    return [Tick(name, None if last is None else moment(last), moment(due)) for name, last, due in rows]


def tick(move: Move, name: str, before: datetime | None, last: datetime, due: datetime) -> bool:
    known = None if before is None else micros(before)
    return move.run("tick", name=name, before=known, last=micros(last), due=micros(due)).rowcount == 1


def forget_schedule(move: Move, name: str) -> bool:
    return move.connection.execute("DELETE FROM holdfast_schedule_tick WHERE name = ?", (name,)).rowcount == 1
