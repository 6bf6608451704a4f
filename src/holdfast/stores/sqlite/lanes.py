"""Lanes by number: jobs keep the small number, people and workers know the name."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from holdfast.domain.job import Lane


class LaneNumbers:
    """Remembers what is committed: a lane never changes once it exists."""

    def __init__(self) -> None:
        self._numbers: dict[Lane, int] = {}
        self._lanes: dict[int, Lane] = {}
        self.missed = False  #: a job was put into a lane that is not remembered

    def numbers(self, lanes: Iterable[Lane]) -> list[int]:
        """The numbers of those that are remembered."""
        return [self._numbers[lane] for lane in lanes if lane in self._numbers]

    def number(self, connection: sqlite3.Connection, lane: Lane) -> int:
        """The number of *lane*, made if need be. Not remembered before it is committed: the insert may be undone."""
        found = self._numbers.get(lane)
        if found is not None:
            return found
        self.missed = True
        row = connection.execute(
            "SELECT id FROM holdfast_lane WHERE queue = ? AND task = ? AND dependency = ? AND shard = ? AND fair = ?",
            lane,
        ).fetchone()
        if row is None:
            row = connection.execute(
                "INSERT INTO holdfast_lane (queue, task, dependency, shard, fair) VALUES (?, ?, ?, ?, ?) RETURNING id",
                lane,
            ).fetchone()
        return int(row[0])

    def by_number(self, connection: sqlite3.Connection) -> dict[int, Lane]:
        """All lanes. What is seen inside a transaction is not remembered: undone, its numbers are given to others."""
        [(count,)] = connection.execute("SELECT count(*) FROM holdfast_lane")
        if count == len(self._lanes):
            return self._lanes
        lanes = {
            number: Lane(queue, task, dependency, shard, bool(fair))
            for number, queue, task, dependency, shard, fair in connection.execute(
                "SELECT id, queue, task, dependency, shard, fair FROM holdfast_lane"
            )
        }
        if not connection.in_transaction:
            self._numbers, self._lanes = _turned(lanes), lanes  # in this order: see `existing`
        return lanes

    def existing(self, seen: dict[int, Lane], lanes: Iterable[Lane]) -> dict[int, Lane]:
        """Those of *lanes* that are among the *seen*, by number, in this order: a worker serves many that never were made."""
        numbers = self._numbers if seen is self._lanes else _turned(seen)
        return {numbers[lane]: lane for lane in lanes if lane in numbers}

    def remember(self, connection: sqlite3.Connection) -> None:
        """Call on a connection outside of transactions: what it sees is committed."""
        self.missed = False
        self.by_number(connection)


def _turned(lanes: dict[int, Lane]) -> dict[Lane, int]:
    return {lane: number for number, lane in lanes.items()}
