"""What external tasks ask of SQLite."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast.domain.external_task import WaitingExternalTask
from holdfast.domain.job import JobId, Lane
from holdfast.domain.outbox import NewMessage
from holdfast.engine.ports import Transaction
from holdfast.stores.encoding import to_json
from holdfast.stores.external_tasks import waiting_jobs
from holdfast.stores.outbox_encoding import message_columns
from holdfast.stores.sqlite.holds import ANYTHING_HELD, named
from holdfast.stores.sqlite.move import SQL
from holdfast.stores.sqlite.times import micros, moment, span

#: ?1 is always a JSON array: of the lanes that are held.
_SELECT = """SELECT j.uid, n.task, j.generation, j.attempt, j.payload, j.version, j.trace, max(j.updated_at, j.run_at),
                    j.phase = 0 AND j.lane NOT IN (SELECT value FROM json_each(?1)), j.deadline_at"""
_LANES = "SELECT id, queue, task, dependency, shard, fair FROM holdfast_lane WHERE task IN (SELECT value FROM json_each(?))"
_WAITING = f"""{_SELECT} FROM holdfast_job j JOIN holdfast_lane n ON n.id = j.lane
 WHERE j.uid IN (SELECT value FROM json_each(?3)) AND j.phase IN (0, 1) AND n.task IN (SELECT value FROM json_each(?2))"""
_COME_DUE = f"""{_SELECT} FROM holdfast_lane n CROSS JOIN holdfast_job j ON j.lane = n.id AND j.phase = 0
 WHERE n.task IN (SELECT value FROM json_each(?2)) AND j.uid > ?3
   AND CASE WHEN j.attempt = 0 THEN j.generation > 1 OR j.run_at > j.queued_at
            ELSE (SELECT a.outcome FROM holdfast_attempt a WHERE a.job = j.id AND a.epoch = j.epoch)
                 IN ('reclaimed', 'retry') END
 ORDER BY j.uid LIMIT ?4"""
_UNTOLD = f"""{_SELECT} FROM holdfast_lane n CROSS JOIN holdfast_job j ON j.lane = n.id AND j.phase = 0
 WHERE n.task IN (SELECT value FROM json_each(?2)) AND j.uid > ?3 AND j.attempt = 0
   AND NOT EXISTS (SELECT 1 FROM holdfast_outbox o WHERE o.id = j.uid || '.' || j.generation)
 ORDER BY j.uid LIMIT ?4"""
_OVERDUE = f"""{_SELECT} FROM json_each(?2) t CROSS JOIN holdfast_lane n ON n.task = t.key
       CROSS JOIN holdfast_job j ON j.lane = n.id AND j.phase = 0
 WHERE j.uid > ?3 AND max(j.updated_at, j.run_at) <= ?5 - t.value
 ORDER BY j.uid LIMIT ?4"""
_KNOWN = "SELECT id FROM holdfast_outbox WHERE id IN (SELECT value FROM json_each(?))"


class SqliteExternalTasks:
    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def now(self) -> datetime:
        return await self._transaction.now()

    async def waiting(self, job_ids: Collection[JobId], tasks: Collection[str]) -> list[WaitingExternalTask]:
        return await self._jobs(_WAITING, tasks, to_json(list(tasks)), to_json(list(job_ids)))

    async def promote_due(self, tasks: Collection[str], after: str, limit: int) -> list[WaitingExternalTask]:
        return await self._jobs(_COME_DUE, tasks, to_json(list(tasks)), after, limit)

    async def unpublished(self, tasks: Collection[str], after: str, limit: int) -> list[WaitingExternalTask]:
        return await self._jobs(_UNTOLD, tasks, to_json(list(tasks)), after, limit)

    async def overdue(
        self, tasks: Mapping[str, timedelta], after: str, limit: int
    ) -> list[WaitingExternalTask]:
        spans = to_json({name: span(length) for name, length in tasks.items()})
        return await self._jobs(_OVERDUE, tasks, spans, after, limit, micros(await self.now()))

    async def known(self, message_ids: Collection[str]) -> set[str]:
        return {name for (name,) in await self._transaction.execute(_KNOWN, to_json(list(message_ids)))}

    async def publish(self, messages: Sequence[NewMessage]) -> None:
        now = micros(await self.now())
        for message in messages:
            await self._transaction.execute(SQL["publish"], *message_columns(message), now)

    async def _jobs(self, sql: str, tasks: Collection[str], *parameters: Any) -> list[WaitingExternalTask]:
        held = to_json(await self._held(tasks))
        return waiting_jobs(await self._transaction.execute(sql, held, *parameters), moment)

    async def _held(self, tasks: Collection[str]) -> list[int]:
        """The numbers of their lanes that something holds; on most days nothing is held at all."""
        [(anything,)] = await self._transaction.execute(ANYTHING_HELD)
        if not anything:
            return []
        found = await self._transaction.execute(_LANES, to_json(list(tasks)))
        lanes = [Lane._make((*names, bool(fair))) for _, *names, fair in found]
        rows = await self._transaction.execute(SQL["holding"], named(lanes), micros(await self.now()), False)
        return [found[place][0] for (place,) in rows]
