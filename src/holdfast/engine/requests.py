"""Requests to an HTTP API: what was done under their names (`Idempotency-Key`), and how many a caller may send.

A server makes this namespace for itself, `Requests(app.runtime)`. It is no member of an app, because only servers need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.engine.lane_store import Charge
from holdfast.engine.named_request import EarlierRequest, NamedRequest, Repeated, StartedRequest
from holdfast.engine.namespace import Namespace
from holdfast.engine.tables import requests
from holdfast.jobs.job import Enqueued, NewJob
from holdfast.resilience.limits import Rate


class Requests(Namespace):
    """Records of named requests, and counts of all requests, shared by all servers of a database."""

    async def enqueue(
        self, request: NamedRequest, jobs: Sequence[NewJob], *, keep: timedelta
    ) -> Sequence[Enqueued] | Repeated:
        """Store *jobs* and the *request* in one transaction, unless a request of this name was answered before.

        The request is known for *keep*.
        """
        return await (await self._engine()).enqueue_once(request, jobs, keep=keep)

    async def begin(
        self, request: NamedRequest, holder: str, *, span: timedelta, keep: timedelta
    ) -> StartedRequest | EarlierRequest:
        """Take a request to carry it out within *span*, or return what is known of it.

        A request that was begun and not answered within its span can be taken again. *holder* names this call.
        """
        store = (await self._engine()).store
        return await requests.begin(store, request, holder, span=span, keep=keep)

    async def answer(self, request: NamedRequest, ticket: str, answer: str, *, keep: timedelta) -> bool:
        """Keep the *answer* of a request. Return False when another holder has taken it."""
        return await requests.answer((await self._engine()).store, request, ticket, answer, keep=keep)

    async def drop(self, request: NamedRequest, ticket: str) -> bool:
        """Forget a request that changed nothing. Return False when another holder has taken it."""
        return await requests.drop((await self._engine()).store, request, ticket)

    async def leave(self, request: NamedRequest, ticket: str) -> bool:
        """End a request whose result is unknown, so that the next holder carries it out under the same token.

        Return False when another holder has taken it.
        """
        return await requests.leave((await self._engine()).store, request, ticket)

    async def charge(self, scope: str, rate: Rate, amount: int) -> timedelta | None:
        """Count *amount* requests of *scope* against its *rate*.

        Return None when they fit, or the time until they do; then none is counted.
        """
        charge = Charge(scope, "rate", rate.count, amount, rate.per)
        [refusal] = await (await self._engine()).store.lanes.charge([[charge]])
        return None if refusal is None else refusal.resets_in
