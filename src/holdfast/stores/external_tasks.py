"""What external tasks need of a store that is a database (`holdfast.outbox.external_tasks` has the contract)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

from holdfast.engine.ports import Transaction
from holdfast.engine.tables.sql import fetch, maybe_moment, moment
from holdfast.jobs.external_task import WaitingExternalTask
from holdfast.jobs.job import JobId
from holdfast.outbox.model import NewMessage

#: Before the id of every job.
_FIRST = "00000000-0000-0000-0000-000000000000"


class SqlExternalTasks(ABC):
    """The part that is the same for both databases.

    The statements are in the dialect of `engine.tables.sql`, and return the fields of `WaitingExternalTask`. Their parameters are the
    tasks, what `_also` returns, and then the ids, or the id before the first job and how many.
    """

    _waiting: ClassVar[str]
    _newly_due: ClassVar[str]
    _unpublished: ClassVar[str]
    _overdue: ClassVar[str]  #: one more parameter: how long a job of each task may be queued
    _known: ClassVar[str]  #: the only parameter: names of messages

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def now(self) -> datetime:
        return await self._transaction.now()

    async def waiting(self, job_ids: Collection[JobId], tasks: Collection[str]) -> list[WaitingExternalTask]:
        return await self._jobs(self._waiting, tasks, list(job_ids))

    async def newly_due(self, tasks: Collection[str], after: str, limit: int) -> list[WaitingExternalTask]:
        return await self._jobs(self._newly_due, tasks, after or _FIRST, limit)

    async def unpublished(self, tasks: Collection[str], after: str, limit: int) -> list[WaitingExternalTask]:
        return await self._jobs(self._unpublished, tasks, after or _FIRST, limit)

    async def overdue(
        self, tasks: Mapping[str, timedelta], after: str, limit: int
    ) -> list[WaitingExternalTask]:
        return await self._jobs(self._overdue, tasks, after or _FIRST, limit, list(tasks.values()))

    async def known(self, message_ids: Collection[str]) -> set[str]:
        return {name for (name,) in await fetch(self._transaction, self._known, list(message_ids))}

    @abstractmethod
    async def publish(self, messages: Sequence[NewMessage]) -> None:
        """Store messages in this transaction."""

    async def _also(self, tasks: Collection[str]) -> tuple[Any, ...]:
        """Return more parameters for the statements that return jobs."""
        return ()

    async def _jobs(self, sql: str, tasks: Collection[str], *parameters: Any) -> list[WaitingExternalTask]:
        rows = await fetch(self._transaction, sql, list(tasks), *await self._also(tasks), *parameters)
        return [
            WaitingExternalTask._make(
                (JobId(str(job_id)), *facts, moment(since), bool(due), maybe_moment(deadline))
            )
            for job_id, *facts, since, due, deadline in rows
        ]
