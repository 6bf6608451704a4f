"""The part of the port that `holdfast.engine.api_store` describes: keys, requests, operations, webhooks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

import asyncpg

from holdfast.domain.access import AccessKey
from holdfast.domain.job import Enqueued, JobBatch, NewJob
from holdfast.domain.operation import Operation, Progress
from holdfast.domain.webhook import Webhook
from holdfast.engine.api_store import EarlierRequest, NamedRequest, Repeated, StartedRequest
from holdfast.stores.postgres import access_keys, operations, requests, webhooks
from holdfast.stores.postgres.admission import Admission
from holdfast.stores.postgres.runner import UNDONE


class ApiTables(Admission):
    # -- keys -------------------------------------------------------------------------------------------------------
    async def add_key(self, key: AccessKey, *, lasts: timedelta | None) -> AccessKey:
        return await self._runner.run("people", lambda db: access_keys.add_key(db, key, lasts))

    async def keys(self) -> list[AccessKey]:
        return await self._look(access_keys.keys)

    async def key(self, digest: bytes) -> AccessKey | None:
        return await self._look(lambda db: access_keys.key(db, digest))

    async def revoke_key(self, key_id: str, *, after: timedelta = timedelta()) -> bool:
        return await self._runner.run("people", lambda db: access_keys.revoke_key(db, key_id, after))

    async def touch_keys(self, key_ids: Collection[str]) -> None:
        await self._runner.run("people", lambda db: access_keys.touch_keys(db, key_ids))

    # -- requests ---------------------------------------------------------------------------------------------------
    async def enqueue_once(
        self, request: NamedRequest, jobs: Sequence[NewJob], *, keep: timedelta
    ) -> Sequence[Enqueued] | Repeated:
        async def run(connection: asyncpg.Connection[Any]) -> Sequence[Enqueued] | Repeated:
            for quick in (not self.hooks, False):
                try:
                    async with connection.transaction():
                        move = self._move(connection)
                        return await requests.enqueue_once(move, request, jobs, keep, quick)
                except asyncpg.UniqueViolationError:
                    if not quick:
                        raise
            raise AssertionError("unreachable")

        answers = await self._runner.run("enqueue", run)
        if not isinstance(answers, Repeated):
            await self._let_in(JobBatch.split(jobs))
        return answers

    async def begin_request(
        self, request: NamedRequest, holder: str, *, span: timedelta, keep: timedelta
    ) -> StartedRequest | EarlierRequest:
        async def run(connection: asyncpg.Connection[Any]) -> StartedRequest | EarlierRequest:
            async with connection.transaction():
                return await requests.begin_request(connection, request, holder, span, keep)

        return await self._runner.run("people", run)

    async def answer_request(
        self, request: NamedRequest, ticket: str, answer: str, *, keep: timedelta
    ) -> bool:
        return await self._runner.run(
            "people", lambda db: requests.answer_request(db, request, ticket, answer, keep)
        )

    async def drop_request(self, request: NamedRequest, ticket: str) -> bool:
        return await self._runner.run("people", lambda db: requests.drop_request(db, request, ticket))

    async def leave_request(self, request: NamedRequest, ticket: str) -> bool:
        return await self._runner.run("people", lambda db: requests.leave_request(db, request, ticket))

    async def forget_requests(self, limit: int) -> int:
        return await self._runner.run("maintenance", lambda db: requests.forget_requests(db, limit))

    # -- operations -------------------------------------------------------------------------------------------------
    async def begin_operation(self, operation: Operation) -> Operation:
        return await self._runner.run("people", lambda db: operations.begin_operation(db, operation))

    async def operation(self, operation_id: str) -> Operation | None:
        return await self._look(lambda db: operations.operation_of(db, operation_id))

    async def operations(self, limit: int) -> list[Operation]:
        return await self._look(lambda db: operations.operations(db, limit))

    async def take_operation(self, span: timedelta) -> Operation | None:
        # One that was taken without an answer is taken again when its span is over.
        return await self._runner.run("maintenance", lambda db: operations.take_operation(db, span))

    async def advance_operation(
        self, operation: Operation, *, cursor: str | None, done: int, refused: int, span: timedelta
    ) -> bool:
        # Sent again only when the server undid it: twice, it would count twice.
        return await self._runner.run(
            "maintenance",
            lambda db: operations.advance_operation(db, operation, cursor, done, refused, span),
            again=UNDONE,
        )

    async def end_operation(self, operation_id: str, progress: Progress, *, error: str | None = None) -> bool:
        return await self._runner.run(
            "people", lambda db: operations.end_operation(db, operation_id, progress, error)
        )

    # -- webhooks ---------------------------------------------------------------------------------------------------
    async def put_webhook(self, webhook: Webhook) -> Webhook:
        return await self._runner.run("people", lambda db: webhooks.put_webhook(db, webhook))

    async def webhooks(self) -> list[Webhook]:
        return await self._look(webhooks.webhooks)

    async def remove_webhook(self, webhook_id: str) -> bool:
        return await self._runner.run("people", lambda db: webhooks.remove_webhook(db, webhook_id))

    async def webhook_answered(
        self, webhook_id: str, *, well: bool, disable_after: timedelta
    ) -> Webhook | None:
        return await self._runner.run(
            "people", lambda db: webhooks.webhook_answered(db, webhook_id, well, disable_after)
        )

    async def bookmark(self, name: str) -> int | None:
        return await self._look(lambda db: webhooks.bookmark(db, name))

    async def move_bookmark(self, name: str, *, before: int | None, to: int) -> bool:
        return await self._runner.run("people", lambda db: webhooks.move_bookmark(db, name, before, to))
