"""Where schedules stand: one row each, moved on by compare-and-set, so that of many processes one enqueues (E39)."""

from __future__ import annotations

from datetime import datetime

from holdfast.engine.lane_store import Tick
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.times import micros, moment


def ticks(move: Move) -> list[Tick]:
    rows = move.connection.execute("SELECT name, last, due, ticked FROM holdfast_schedule_tick ORDER BY name")
    return [Tick(name, _maybe(last), moment(due), _maybe(ticked)) for name, last, due, ticked in rows]


def _maybe(value: int | None) -> datetime | None:
    return None if value is None else moment(value)


def tick(
    move: Move,
    name: str,
    before: datetime | None,
    last: datetime,
    due: datetime,
    ticked: datetime | None,
) -> bool:
    given = {
        "before": None if before is None else micros(before),
        "ticked": None if ticked is None else micros(ticked),
    }
    return move.run("tick", name=name, last=micros(last), due=micros(due), **given).rowcount == 1


def forget_schedule(move: Move, name: str) -> bool:
    return move.connection.execute("DELETE FROM holdfast_schedule_tick WHERE name = ?", (name,)).rowcount == 1
