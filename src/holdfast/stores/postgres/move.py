"""One operation on one connection: its events, its hooks.

The verbs (`intake`, `settling`, `recovering`, `people`) are functions that make their guarded writes through a `Move`
(rule 1 of docs/explanation/reliability.md). Most statements record their own events; what is left is the move's to record. The hooks are told before the
commit, so that what they write happens with the move or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import asyncpg

from holdfast.domain.job import JobId, Lease
from holdfast.domain.moves import Kind, State
from holdfast.engine.ports import Hook, MoveNotice, Transaction
from holdfast.errors import UnknownJob
from holdfast.stores.encoding import shown, to_json
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.lanes import LaneNumbers

#: Stands in an event for the job, where it tells of none.
NO_JOB = "00000000-0000-0000-0000-000000000000"


class Move:
    """*lanes* maps lanes to their numbers and is shared by all operations."""

    def __init__(
        self,
        connection: asyncpg.Connection[Any],
        lanes: LaneNumbers,
        hooks: Sequence[tuple[frozenset[Kind], Hook]] = (),
    ) -> None:
        self.connection, self.lanes = connection, lanes
        self._hooks = hooks
        self.telling = bool(hooks)  #: without hooks nobody has to be told
        self.told: list[MoveNotice] = []
        self.freed: set[str] = set()  #: keys of which a slot became free: `grant` should run

    async def run(self, name: str, *parameters: Any) -> list[asyncpg.Record]:
        return await self.connection.fetch(SQL[name], *parameters)

    # -- one job ----------------------------------------------------------------------------------------------------
    async def state(self, job_id: JobId) -> State:
        """Where it is, or `UnknownJob`."""
        state = await self.connection.fetchval("SELECT state FROM holdfast.jobs WHERE id = $1", job_id)
        if state is None:
            raise UnknownJob(job_id)
        return State(state)

    async def forget_steps(self, job_id: JobId, names: Collection[str] | None) -> None:
        """Those of these *names*, or all."""
        if names is None:
            await self.connection.execute("DELETE FROM holdfast.step WHERE job_id = $1", job_id)
        elif names:
            sql = "DELETE FROM holdfast.step WHERE job_id = $1 AND name = ANY ($2)"
            await self.connection.execute(sql, job_id, list(names))

    # -- events and hooks -------------------------------------------------------------------------------------------
    async def record_one(self, kind: Kind, lease: Lease, attempt: int, meta: dict[str, Any]) -> None:
        await self.connection.execute(
            "INSERT INTO holdfast.event (seq, at, kind, job_ids, epochs, attempts, metas, job_id)"
            " VALUES (holdfast.event_number(), holdfast.clock(), $1, ARRAY[$2::uuid], ARRAY[$3::bigint], ARRAY[$4::smallint],"
            " ARRAY[$5::jsonb], $2)",
            int(kind), *lease, attempt, to_json(meta),
        )  # fmt: skip
        self.tell(kind, lease, attempt, meta)

    async def record_no_job(self, kind: Kind, meta: dict[str, Any]) -> None:
        """An event of no job: of a lane, a queue, a dependency."""
        await self.connection.execute(
            "INSERT INTO holdfast.event (seq, at, kind, job_ids, metas)"
            " VALUES (holdfast.event_number(), holdfast.clock(), $1, ARRAY[$2::uuid], ARRAY[$3::jsonb])",
            int(kind), NO_JOB, to_json(meta),
        )  # fmt: skip
        self.tell(kind, Lease(JobId(""), 0), 0, meta)

    def tell(self, kind: Kind, lease: Lease, attempt: int, meta: dict[str, Any]) -> None:
        """Remember this for the hooks."""
        self.told.append(MoveNotice(kind, *lease, attempt, meta))

    async def call_hooks(self) -> None:
        for kinds, hook in self._hooks:
            wanted = [moved._replace(meta=shown(moved.meta)) for moved in self.told if moved.kind in kinds]
            if wanted:
                await hook(self.transaction, wanted)

    @property
    def transaction(self) -> Transaction:
        """The transaction of this move, as hooks see it."""
        return _HookTransaction(self.connection)


async def ask_the_time(transaction: Transaction) -> datetime:
    """By the store's clock."""
    [(now,)] = await transaction.execute("SELECT holdfast.clock()")
    assert isinstance(now, datetime)
    return now


class _HookTransaction:
    dialect = "postgres"

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection

    async def execute(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self._connection.fetch(sql, *params)]

    async def now(self) -> datetime:
        return await ask_the_time(self)
