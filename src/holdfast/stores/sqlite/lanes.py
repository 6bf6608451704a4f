"""The numbers of lanes. A row of a job has the number of its lane; workers and people use the name."""

from __future__ import annotations

import sqlite3
from collections import ChainMap
from collections.abc import Iterable, Mapping

from holdfast.jobs.job import Lane


class LaneNumbers:
    """A cache of the lanes that are committed. A lane never changes once it exists."""

    def __init__(self) -> None:
        self._numbers: dict[Lane, int] = {}
        self._lanes: dict[int, Lane] = {}
        self._newest = 0  #: the highest number in the cache
        self.missed = False  #: a job was stored in a lane that is not in the cache

    def numbers(self, lanes: Iterable[Lane]) -> list[int]:
        """Return the numbers of those *lanes* that are in the cache."""
        return [self._numbers[lane] for lane in lanes if lane in self._numbers]

    def by_name(self, lanes: Iterable[Lane]) -> dict[int, Lane]:
        """Return those of *lanes* that are in the cache, by number."""
        return {self._numbers[lane]: lane for lane in lanes if lane in self._numbers}

    def number(self, connection: sqlite3.Connection, lane: Lane) -> int:
        """Return the number of *lane*, and create the lane if it does not exist.

        A new lane is not put into the cache here, because its transaction may be rolled back.
        """
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

    def newest(self, connection: sqlite3.Connection) -> int:
        """Return the highest number of a lane: numbers only grow, so nothing is new while it stays the same."""
        [(newest,)] = connection.execute("SELECT max(id) FROM holdfast_lane")
        return newest or 0

    def by_number(self, connection: sqlite3.Connection) -> Mapping[int, Lane]:
        """Return all lanes by number.

        Lanes that are read inside a transaction are not put into the cache: after a rollback others get their numbers.
        """
        newest = self.newest(connection)
        if newest == self._newest:
            return self._lanes
        if newest < self._newest:  # another file is in its place
            self._numbers, self._lanes, self._newest = {}, {}, 0
        rows = connection.execute(
            "SELECT id, queue, task, dependency, shard, fair FROM holdfast_lane WHERE id > ?", (self._newest,)
        )
        found = {
            number: Lane(queue, task, dependency, shard, bool(fair))
            for number, queue, task, dependency, shard, fair in rows
        }
        if connection.in_transaction:
            return ChainMap(found, self._lanes)
        self._numbers.update((lane, number) for number, lane in found.items())
        self._lanes.update(found)
        self._newest = newest  # last: a thread that looks meanwhile reads the same rows again
        return self._lanes

    def existing(self, seen: Mapping[int, Lane], lanes: Iterable[Lane]) -> dict[int, Lane]:
        """Return those of *lanes* that exist, by number and in their order: a worker may serve many that were never created.

        *seen* is what `by_number` returned.
        """
        numbers: Mapping[Lane, int] = self._numbers
        if isinstance(seen, ChainMap):
            numbers = ChainMap({lane: number for number, lane in seen.maps[0].items()}, self._numbers)
        return {numbers[lane]: lane for lane in lanes if lane in numbers}

    def remember(self, connection: sqlite3.Connection) -> None:
        """Put all lanes into the cache. Call it outside of a transaction, so that they are committed."""
        self.missed = False
        self.by_number(connection)
