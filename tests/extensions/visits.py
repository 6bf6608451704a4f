"""A toy extension that uses every hook: it writes down each move of a job, and refuses those of an owner who is barred."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from holdfast.extensions import (
    Check,
    Extension,
    JobId,
    Kind,
    Level,
    MaintenanceTask,
    MoveNotice,
    Refused,
    Transaction,
    Transacts,
    sql,
    validation,
)

if TYPE_CHECKING:
    from starlette.routing import BaseRoute


class Visits(Extension):
    name = "visits"
    migrations = "tests.extensions"
    kinds = frozenset(Kind)
    capabilities = frozenset({"visits", "visits.weight"})
    task_options: ClassVar = {"weight": lambda option, value: validation.whole(option, value, 0, 100)}

    def __init__(self) -> None:
        self.openings = self.rounds = 0
        self.forgets = True
        self.barred = {"barred"}

    async def opened(self, store: Transacts) -> None:
        await sql.read(store, "SELECT count(*) FROM holdfast.visits_seen")
        self.openings += 1

    async def moved(self, transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        jobs = {job.id: job for job in await transaction.jobs([moved.job_id for moved in moves])}
        columns = {"job": "text", "kind": "text", "weight": "bigint"}
        rows = []
        for moved in moves:
            job = jobs.get(moved.job_id)
            task = None if job is None else self.app.tasks.get(job.task)
            weight = 0 if task is None else task.policy.extra.get("weight", 1)
            rows.append((moved.job_id, moved.kind.name, weight))
        await sql.insert(transaction, "visits_seen", columns, rows)
        if any(job.owner in self.barred for job in jobs.values()):
            raise Refused("barred may not visit; ask the porter", code="BARRED", porter="Jo")

    async def purged(self, transaction: Transaction, job_ids: Collection[JobId]) -> None:
        await sql.fetch(
            transaction, "DELETE FROM holdfast.visits_seen WHERE job = ANY ($1::text[])", list(job_ids)
        )
        if not self.forgets:
            raise Refused("visits are kept", code="KEPT")

    def maintenance(self) -> Sequence[MaintenanceTask]:
        return [MaintenanceTask("visits", 0.05, self._go_round)]

    async def _go_round(self) -> None:
        self.rounds += 1

    async def measures(self) -> Mapping[str, float]:
        return {"seen": len(await self.seen())}

    async def health(self) -> Sequence[Check]:
        return [Check("visits", Level.WARN, 1, 0, "a guest is in the house; show them out")]

    def routes(self) -> Sequence[BaseRoute]:
        from tests.extensions.routes import routes

        return routes.routes

    async def seen(self, job_id: str | None = None) -> list[str]:
        """Return the kinds of the moves that were seen, of one job or of all."""

        async def look(transaction: Transaction) -> list[str]:
            rows = await sql.fetch(
                transaction,
                "SELECT kind FROM holdfast.visits_seen WHERE $1::text IS NULL OR job = $1::text ORDER BY kind",
                job_id,
            )
            return [row["kind"] for row in rows]

        return await self.app.transact(look, reads=True)

    def seen_sync(self) -> list[str]:
        return self.app.run_sync(self.seen())


command = typer.Typer()


@command.command()
def visits(guest: str = "nobody") -> None:
    """Greet a guest."""
    print(f"welcome, {guest}")


def as_extension(found: Any) -> Visits:
    assert isinstance(found, Visits)
    return found
