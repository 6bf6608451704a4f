"""What the front doors keep in a store: keys, requests that were answered, operations, webhooks. Part of the port `Store`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, Protocol

from holdfast.domain.access import AccessKey
from holdfast.domain.job import Enqueued, JobId, NewJob
from holdfast.domain.operation import Operation, Progress
from holdfast.domain.webhook import Webhook

#: How long an operation is on record after it ended.
KEEP_OPERATIONS = timedelta(days=30)


class NamedRequest(NamedTuple):
    """A request that its sender has named, so that it may be sent again (`Idempotency-Key`)."""

    scope: str  #: whose name it is: route and owner
    name: str
    fingerprint: bytes  #: of its content


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """A request of this name was answered before: so, for this content."""

    fingerprint: bytes
    answers: tuple[Enqueued, ...]

    @property
    def ids(self) -> tuple[JobId, ...]:
        return tuple(answer.id for answer in self.answers)


class StartedRequest(NamedTuple):
    """A request is ours to carry out."""

    #: Names what is done because of it: the same when it is begun once more, after the process that had begun it was lost.
    token: str
    ticket: str  #: the right to answer it


class EarlierRequest(NamedTuple):
    """A request of this name was begun before, for this content. *answer* is None while it is carried out."""

    fingerprint: bytes
    answer: str | None


class ApiStore(Protocol):
    # -- keys -------------------------------------------------------------------------------------------------------
    async def add_key(self, key: AccessKey, *, lasts: timedelta | None) -> AccessKey:
        """Keep it; *created_at* and *expires_at* (in *lasts*) are the store's. One whose id is known already stays as it is, but
        for its digest: a caller that creates it again has not got the secret."""

    async def keys(self) -> list[AccessKey]:
        """All of them, those that ended too; oldest first."""

    async def key(self, digest: bytes) -> AccessKey | None:
        """The valid key of this digest."""

    async def revoke_key(self, key_id: str, *, after: timedelta = timedelta()) -> bool:
        """End it, now or *after* a while (never later than it would have ended); False when there is none that is valid."""

    async def touch_keys(self, key_ids: Collection[str]) -> None:
        """They were used just now."""

    # -- requests ---------------------------------------------------------------------------------------------------
    async def enqueue_once(
        self, request: NamedRequest, jobs: Sequence[NewJob], *, keep: timedelta
    ) -> Sequence[Enqueued] | Repeated:
        """`enqueue`, and the request kept for *keep*, in one transaction. A request whose name is kept already (of two at
        once, the later) stores nothing. One whose time is up is not known any more, removed or not."""

    async def begin_request(
        self, request: NamedRequest, holder: str, *, span: timedelta, keep: timedelta
    ) -> StartedRequest | EarlierRequest:
        """Take a request to carry it out: it is ours for *span*, and known for *keep*. One that somebody has begun and not
        answered in their *span* is ours under their token; another's, or one that was answered, is `EarlierRequest`. *holder* names this
        call: sent again, it is answered as before."""

    async def answer_request(
        self, request: NamedRequest, ticket: str, answer: str, *, keep: timedelta
    ) -> bool:
        """Keep its *answer* for *keep*; False when another holds it now."""

    async def drop_request(self, request: NamedRequest, ticket: str) -> bool:
        """Nothing was done, and its name is free again; False when another holds it now."""

    async def leave_request(self, request: NamedRequest, ticket: str) -> bool:
        """Leave a request whose result is unknown: the next process to begin it does so under its token.

        Return False when another holds it now.
        """

    # -- operations -------------------------------------------------------------------------------------------------
    async def begin_operation(self, operation: Operation) -> Operation:
        """Keep it; its moments are the store's. One whose id is known already is not kept twice: it is answered as it is."""

    async def operation(self, operation_id: str) -> Operation | None: ...

    async def operations(self, limit: int) -> list[Operation]:
        """Newest first."""

    async def take_operation(self, span: timedelta) -> Operation | None:
        """A running one that nobody works on, the one that waited longest; it is ours for *span*, under a new *epoch*."""

    async def advance_operation(
        self, operation: Operation, *, cursor: str | None, done: int, refused: int, span: timedelta
    ) -> bool:
        """A batch was done: *done* and *refused* more; ours for another *span* (none: for the next worker that takes it). False,
        and nothing is changed, when it runs no more or was taken by another since (its *epoch* has passed)."""

    async def end_operation(self, operation_id: str, progress: Progress, *, error: str | None = None) -> bool:
        """Done, failed or cancelled; False when it ran no more."""

    # -- webhooks ---------------------------------------------------------------------------------------------------
    async def put_webhook(self, webhook: Webhook) -> Webhook:
        """New, or in place of the one of this id; *created_at* is the store's, and stays."""

    async def webhooks(self) -> list[Webhook]:
        """Oldest first."""

    async def remove_webhook(self, webhook_id: str) -> bool: ...

    async def webhook_answered(
        self, webhook_id: str, *, well: bool, disable_after: timedelta
    ) -> Webhook | None:
        """Note how a delivery went: the first failure since a success sets *failing_since*; failing for *disable_after*
        disables it. Its new state; None when there is none of this id."""

    async def bookmark(self, name: str) -> int | None:
        """How far a reader of events has come; None: it has not begun."""

    async def move_bookmark(self, name: str, *, before: int | None, to: int) -> bool:
        """Compare-and-set."""

    # -- leaving ----------------------------------------------------------------------------------------------------
    async def forget_requests(self, limit: int) -> int:
        """Remove requests that were kept long enough, and operations that ended `KEEP_OPERATIONS` ago; how many."""
