"""The part of the port that `holdfast.engine.api_store` describes: keys, requests, operations, webhooks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import TypeVar

from holdfast.domain.access import AccessKey
from holdfast.domain.job import Enqueued, NewJob
from holdfast.domain.operation import Operation, Progress
from holdfast.domain.webhook import Webhook
from holdfast.engine.api_store import EarlierRequest, NamedRequest, Repeated, StartedRequest
from holdfast.stores.sqlite import access_keys, operations, requests, webhooks
from holdfast.stores.sqlite.move import Move

T = TypeVar("T")


class ApiTables(ABC):
    @abstractmethod
    async def _write(self, operation: Callable[[Move], T]) -> T: ...

    @abstractmethod
    async def _write_work(self, operation: Callable[[Move], T]) -> T: ...

    @abstractmethod
    def _peek(self, operation: Callable[[Move], T]) -> T: ...

    # -- keys -------------------------------------------------------------------------------------------------------
    async def add_key(self, key: AccessKey, *, lasts: timedelta | None) -> AccessKey:
        return await self._write(lambda move: access_keys.add_key(move, key, lasts))

    async def keys(self) -> list[AccessKey]:
        return self._peek(access_keys.keys)

    async def key(self, digest: bytes) -> AccessKey | None:
        return self._peek(lambda move: access_keys.key(move, digest))

    async def revoke_key(self, key_id: str, *, after: timedelta = timedelta()) -> bool:
        return await self._write(lambda move: access_keys.revoke_key(move, key_id, after))

    async def touch_keys(self, key_ids: Collection[str]) -> None:
        await self._write(lambda move: access_keys.touch_keys(move, key_ids))

    # -- requests ---------------------------------------------------------------------------------------------------
    async def enqueue_once(
        self, request: NamedRequest, jobs: Sequence[NewJob], *, keep: timedelta
    ) -> Sequence[Enqueued] | Repeated:
        return await self._write_work(lambda move: requests.enqueue_once(move, request, jobs, keep))

    async def begin_request(
        self, request: NamedRequest, holder: str, *, span: timedelta, keep: timedelta
    ) -> StartedRequest | EarlierRequest:
        return await self._write(lambda move: requests.begin_request(move, request, holder, span, keep))

    async def answer_request(
        self, request: NamedRequest, ticket: str, answer: str, *, keep: timedelta
    ) -> bool:
        return await self._write(lambda move: requests.answer_request(move, request, ticket, answer, keep))

    async def drop_request(self, request: NamedRequest, ticket: str) -> bool:
        return await self._write(lambda move: requests.drop_request(move, request, ticket))

    async def leave_request(self, request: NamedRequest, ticket: str) -> bool:
        return await self._write(lambda move: requests.leave_request(move, request, ticket))

    async def forget_requests(self, limit: int) -> int:
        if not self._peek(requests.are_forgettable):
            return 0
        return await self._write(lambda move: requests.forget_requests(move, limit))

    # -- operations -------------------------------------------------------------------------------------------------
    async def begin_operation(self, operation: Operation) -> Operation:
        return await self._write(lambda move: operations.begin_operation(move, operation))

    async def operation(self, operation_id: str) -> Operation | None:
        return self._peek(lambda move: operations.operation_of(move, operation_id))

    async def operations(self, limit: int) -> list[Operation]:
        return self._peek(lambda move: operations.operations(move, limit))

    async def take_operation(self, span: timedelta) -> Operation | None:
        if not self._peek(operations.is_waiting):
            return None
        return await self._write(lambda move: operations.take_operation(move, span))

    async def advance_operation(
        self, operation: Operation, *, cursor: str | None, done: int, refused: int, span: timedelta
    ) -> bool:
        return await self._write(
            lambda move: operations.advance_operation(move, operation, cursor, done, refused, span)
        )

    async def end_operation(self, operation_id: str, progress: Progress, *, error: str | None = None) -> bool:
        return await self._write(lambda move: operations.end_operation(move, operation_id, progress, error))

    # -- webhooks ---------------------------------------------------------------------------------------------------
    async def put_webhook(self, webhook: Webhook) -> Webhook:
        return await self._write(lambda move: webhooks.put_webhook(move, webhook))

    async def webhooks(self) -> list[Webhook]:
        return self._peek(webhooks.webhooks)

    async def remove_webhook(self, webhook_id: str) -> bool:
        return await self._write(lambda move: webhooks.remove_webhook(move, webhook_id))

    async def webhook_answered(
        self, webhook_id: str, *, well: bool, disable_after: timedelta
    ) -> Webhook | None:
        return await self._write(
            lambda move: webhooks.webhook_answered(move, webhook_id, well, disable_after)
        )

    async def bookmark(self, name: str) -> int | None:
        return self._peek(lambda move: webhooks.bookmark(move, name))

    async def move_bookmark(self, name: str, *, before: int | None, to: int) -> bool:
        return await self._write(lambda move: webhooks.move_bookmark(move, name, before, to))
