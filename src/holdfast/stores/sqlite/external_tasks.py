"""External tasks on SQLite."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.engine.tables.sql import fetch
from holdfast.jobs.job import Lane
from holdfast.outbox.model import NewMessage
from holdfast.stores.external_tasks import SqlExternalTasks
from holdfast.stores.outbox_encoding import message_columns
from holdfast.stores.sqlite.holds import ANYTHING_HELD, named
from holdfast.stores.sqlite.move import SQL
from holdfast.stores.sqlite.times import micros

#: $1 tasks, $2 the lanes that are held.
_SELECT = """SELECT j.uid, n.task, j.generation, j.attempt, j.payload, j.version, j.trace, max(j.updated_at, j.run_at),
                    j.phase = 0 AND j.lane <> ALL ($2::int[]), j.deadline_at"""
_READY = f"""{_SELECT} FROM holdfast_lane n CROSS JOIN holdfast_job j ON j.lane = n.id AND j.phase = 0
 WHERE n.task = ANY ($1::text[]) AND j.uid > $3::text"""
_LANES = "SELECT id, queue, task, dependency, shard, fair FROM holdfast_lane WHERE task = ANY ($1::text[])"
KNOWN = "SELECT id FROM holdfast_outbox WHERE id = ANY ($1::text[])"


class SqliteExternalTasks(SqlExternalTasks):
    _waiting = f"""{_SELECT} FROM holdfast_job j JOIN holdfast_lane n ON n.id = j.lane
 WHERE j.uid = ANY ($3::text[]) AND j.phase IN (0, 1) AND n.task = ANY ($1::text[])"""
    _newly_due = f"""{_READY}
   AND CASE WHEN j.attempt = 0 THEN j.generation > 1 OR j.run_at > j.queued_at
            ELSE (SELECT a.outcome FROM holdfast_attempt a WHERE a.job = j.id AND a.epoch = j.epoch)
                 IN ('reclaimed', 'retry') END
 ORDER BY j.uid LIMIT $4::int"""
    _unpublished = f"""{_READY} AND j.attempt = 0
   AND NOT EXISTS (SELECT 1 FROM holdfast_outbox o WHERE o.id = j.uid || '.' || j.generation)
 ORDER BY j.uid LIMIT $4::int"""
    _overdue = f"""{_SELECT} FROM json_each($1) t CROSS JOIN holdfast_lane n ON n.task = t.value
       CROSS JOIN holdfast_job j ON j.lane = n.id AND j.phase = 0
 WHERE j.uid > $3::text AND max(j.updated_at, j.run_at) <= holdfast.clock() - ($5 ->> t.key)
 ORDER BY j.uid LIMIT $4::int"""
    _known = KNOWN

    async def publish(self, messages: Sequence[NewMessage]) -> None:
        now = micros(await self.now())
        for message in messages:
            await self._transaction.execute(SQL["publish"], *message_columns(message), now)

    async def _also(self, tasks: Collection[str]) -> tuple[list[int]]:
        """Return the numbers of the lanes of *tasks* that something holds."""
        [(anything,)] = await self._transaction.execute(ANYTHING_HELD)
        if not anything:
            return ([],)
        found = await fetch(self._transaction, _LANES, list(tasks))
        lanes = [Lane._make((*names, bool(fair))) for _, *names, fair in found]
        rows = await self._transaction.execute(SQL["holding"], named(lanes), micros(await self.now()), False)
        return ([found[place][0] for (place,) in rows],)
