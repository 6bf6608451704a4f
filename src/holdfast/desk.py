"""The verbs of those who run a front door: keys, operations on everything that matches a filter, attempts that are stuck."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any

from holdfast.domain.access import AccessKey
from holdfast.domain.duration import Duration, duration, optional
from holdfast.domain.job import StuckJob
from holdfast.domain.operation import Operation, Progress
from holdfast.domain.validation import whole
from holdfast.engine import access_keys, operations, stuck
from holdfast.engine.engine import Engine
from holdfast.engine.filters import dead_letter_filter, job_filter
from holdfast.errors import UnknownOperation


class Desk(ABC):
    @abstractmethod
    async def engine(self) -> Engine:
        """The engine of the running event loop."""

    # -- keys -------------------------------------------------------------------------------------------------------
    async def create_key(
        self,
        role: str,
        *,
        owner: str | None = None,
        name: str = "",
        lasts: Duration | None = None,
        token: str | None = None,
    ) -> tuple[AccessKey, str]:
        """A new key and its secret, which is kept nowhere: show it once. A key of the role `owner` needs an *owner*.

        *token*, here and below, is an id that names the call: made again under it, it makes no second key, and the secret it
        tells is the one that is good.
        """
        return await access_keys.create_key(
            await self.engine(), role, owner=owner, name=name, lasts=optional(lasts), token=token
        )

    async def keys(self) -> list[AccessKey]:
        """All keys, those that ended too; oldest first."""
        return await (await self.engine()).store.keys()

    async def find_key(self, secret: str | None) -> AccessKey | None:
        """The key with this secret, while it is valid: for a front door of one's own. None where there is none."""
        return await access_keys.find_key(await self.engine(), secret)

    async def revoke_key(self, key_id: str, *, after: Duration = 0) -> None:
        """End a key, now or *after* a while. `UnknownKey` when none that is valid has this id."""
        await access_keys.revoke_key(await self.engine(), key_id, after=duration(after))

    async def rotate_key(
        self, key_id: str, *, overlap: Duration = "24h", token: str | None = None
    ) -> tuple[AccessKey, str]:
        """A new key in the place of another, which stays valid for the *overlap*; and its secret."""
        return await access_keys.rotate_key(
            await self.engine(), key_id, overlap=duration(overlap), token=token
        )

    # -- operations -------------------------------------------------------------------------------------------------
    async def count(self, **filters: Any) -> int:
        """How many jobs match, by the words of `app.jobs`."""
        return await (await self.engine()).store.count(job_filter(**filters))

    async def count_dead_letters(self, **filters: Any) -> int:
        """How many match, by the words of `app.dead_letters`."""
        return await (await self.engine()).store.count_dead_letters(dead_letter_filter(**filters))

    async def operate(
        self,
        action: str,
        *,
        by: str = "api",
        rate: float | None = None,
        to_queue: str | None = None,
        reason: str = "",
        for_owner: str | None = None,
        dry_run: bool = False,
        **filters: Any,
    ) -> Operation:
        """Begin to `retry` or `cancel` all jobs that match, or to `redrive` or `discard` all dead letters: workers do it, at
        most *rate* a second.

        Without `state=`, failed jobs are retried, and those that are queued or processing are cancelled. *for_owner*: it
        belongs to this owner and reaches nobody else's jobs. *dry_run* begins nothing: only `matched` tells.
        """
        plan = operations.Plan(
            action, filters, by=by, rate=rate, to_queue=to_queue, reason=reason, owner=for_owner
        )
        return await operations.begin(await self.engine(), plan, dry_run=dry_run)

    async def operations(self, *, limit: int = 50) -> list[Operation]:
        """Newest first; those that ended more than 30 days ago are forgotten."""
        return await (await self.engine()).store.operations(whole("limit", limit, 1, 10_000))

    async def operation(self, operation_id: str) -> Operation:
        """How it stands. `UnknownOperation` when there is none."""
        store = (await self.engine()).store
        found = await store.operation(operation_id) if isinstance(operation_id, str) else None
        if found is None:
            raise UnknownOperation(operation_id)
        return found

    async def cancel_operation(self, operation_id: str) -> Operation:
        """Do no more of it; what it has done stays done. Its last state, whether or not it still ran."""
        await (await self.engine()).store.end_operation(operation_id, Progress.CANCELLED)
        return await self.operation(operation_id)

    # -- attempts that are stuck ------------------------------------------------------------------------------------
    async def stuck(
        self,
        *,
        longer_than: Duration | None = None,
        task: str | Collection[str] | None = None,
        owner: str | None = None,
        ids: str | Collection[str] | None = None,
        limit: int = 100,
    ) -> list[StuckJob]:
        """Attempts that run on for too long while their worker lives, oldest first: for longer than the `stuck_after` of their
        task, or than *longer_than*. A page that is full may not be all of them; what is reclaimed makes room for the next."""
        where = job_filter(task=task, owner=owner, ids=ids)
        most = optional(longer_than)
        return await stuck.find_stuck(await self.engine(), where, longer_than=most, limit=limit)

    async def reclaim(self, jobs: Sequence[StuckJob], *, by: str = "api") -> int:
        """Take these stuck jobs from their workers: they fail with `STUCK` and are retried, or become dead letters. How many;
        one that has ended since, or that somebody else was first with, is left alone. *by* goes on record."""
        return await stuck.reclaim(await self.engine(), jobs, by=by)
