"""One operation on one connection: its events, its hooks.

The verbs (`intake`, `outcomes`, `recovery`, `manual`) are functions that make their guarded writes through a `Move`
(rule 1 of docs/explanation/reliability.md). Most statements record their own events; a `Move` records the others. Hooks are
called before the commit, so that what they write happens with the move or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import asyncpg

from holdfast.engine.ports import Hook, MoveNotice, Transaction
from holdfast.errors import UnknownJob
from holdfast.jobs.job import JobId, Lease
from holdfast.jobs.moves import Kind, State
from holdfast.stores.encoding import shown, to_json
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.lanes import LaneNumbers
from holdfast.stores.postgres.transaction import RECORD_ONE, PostgresTransaction


class Move:
    """One operation on a *connection*. *lanes* is the cache that all operations share."""

    def __init__(
        self,
        connection: asyncpg.Connection[Any],
        lanes: LaneNumbers,
        hooks: Sequence[tuple[frozenset[Kind], Hook]] = (),
    ) -> None:
        self.connection, self.lanes = connection, lanes
        self._hooks = hooks
        self.has_hooks = bool(hooks)
        self.notices: list[MoveNotice] = []  #: for the hooks
        self.freed: set[str] = set()  #: keys of which a slot became free: `grant` should run

    async def run(self, name: str, *parameters: Any) -> list[asyncpg.Record]:
        return await self.connection.fetch(SQL[name], *parameters)

    # -- one job ----------------------------------------------------------------------------------------------------
    async def state(self, job_id: JobId) -> State:
        """Return the state of a job. Raise `UnknownJob` if there is none."""
        state = await self.connection.fetchval("SELECT state FROM holdfast.jobs WHERE id = $1", job_id)
        if state is None:
            raise UnknownJob(job_id)
        return State(state)

    async def forget_steps(self, job_id: JobId, names: Collection[str] | None) -> None:
        """Delete the results of the steps with these *names*, or of all steps if it is None."""
        if names is None:
            await self.connection.execute("DELETE FROM holdfast.step WHERE job_id = $1", job_id)
        elif names:
            sql = "DELETE FROM holdfast.step WHERE job_id = $1 AND name = ANY ($2)"
            await self.connection.execute(sql, job_id, list(names))

    # -- events and hooks -------------------------------------------------------------------------------------------
    async def record_one(self, kind: Kind, lease: Lease, attempt: int, meta: dict[str, Any]) -> None:
        await self.connection.execute(RECORD_ONE, int(kind), *lease, attempt, to_json(meta))
        self.notice(kind, lease, attempt, meta)

    def notice(self, kind: Kind, lease: Lease, attempt: int, meta: dict[str, Any]) -> None:
        """Add a notice for the hooks."""
        self.notices.append(MoveNotice(kind, *lease, attempt, meta))

    async def call_hooks(self) -> None:
        for kinds, hook in self._hooks:
            wanted = [moved._replace(meta=shown(moved.meta)) for moved in self.notices if moved.kind in kinds]
            if wanted:
                await hook(self.transaction, wanted)

    @property
    def transaction(self) -> Transaction:
        """The transaction of this move, as hooks see it."""
        return PostgresTransaction(self.connection.fetch, self.notice)
