"""`AsyncClient`: the API from async code. The same verbs as `Client`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, TypeVar, Unpack

import httpx2

from holdfast.client import calls
from holdfast.client.call import Call
from holdfast.client.core import (
    PAGE,
    ApiResponse,
    Core,
    ResultPoll,
    media_of,
    no_counting,
    no_operation,
    stream_call,
)
from holdfast.client.environment import Environment
from holdfast.client.errors import ClientError
from holdfast.client.event_stream import MEDIA_TYPE, StreamEvent, StreamReader
from holdfast.client.retries import RequestRetries
from holdfast.client.types import (
    AttemptView,
    DeadLetterGroupView,
    DeadLetterView,
    DependencyView,
    EnqueuedView,
    EventView,
    ExplanationView,
    HealthView,
    JobOptions,
    JobRequest,
    JobView,
    LaneView,
    ListDeadLetterGroupsQuery,
    ListDeadLettersQuery,
    ListJobsQuery,
    MovedJob,
    OperationAction,
    OperationFilter,
    OperationOptions,
    OperationView,
    Paused,
    QueueView,
    Resumed,
    Retried,
    ScopeKind,
    WorkerView,
)
from holdfast.domain.duration import Duration

T = TypeVar("T")


class AsyncClient:
    """A Holdfast API at *url*, for async code, in one event loop. Close it, or use it in an `async with` block.

    What may be sent again is, as *patience* says: after a lost connection, 429 or 503. Whatever changes something carries
    an Idempotency-Key, so that it happens once however often it is sent. What is not a verb here is sent by
    `await client.send(calls.rotate_key(…))`. Errors are those of `holdfast.client.errors`.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: Duration = "10s",
        patience: RequestRetries | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
        surroundings: Environment | None = None,
    ) -> None:
        self._core = Core(url, key, timeout, patience, surroundings)
        self._http = httpx2.AsyncClient(transport=transport, **self._core.options())

    def __repr__(self) -> str:
        return f"<AsyncClient of {self._core.url}>"  # without its key

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    # -- any call -----------------------------------------------------------------------------------------------------
    async def send(self, call: Call[T]) -> T:
        """Send a call of `holdfast.client.calls`; what it is answered by."""
        return (await self.exchange(call)).value

    async def exchange(self, call: Call[T]) -> ApiResponse[T]:
        """The same, with the status and headers of the answer."""
        request, attempt = self._core.request(call), 1
        while True:
            try:
                return self._core.read(call, await self._http.request(**request))
            except (ClientError, httpx2.RequestError) as error:
                await self._core.world.sleep_async(self._core.pause(call, attempt, error))
            attempt += 1

    # -- jobs ---------------------------------------------------------------------------------------------------------
    async def enqueue(
        self,
        task: str,
        args: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> EnqueuedView:
        """A new job. Give an *idempotency_key* of your own where your program may itself be run again."""
        return await self.send(
            calls.enqueue_job(idempotency_key=idempotency_key, task=task, args=dict(args or {}), **options)
        )

    async def enqueue_many(
        self, jobs: Sequence[JobRequest], *, idempotency_key: str | None = None
    ) -> list[EnqueuedView]:
        """All of them, or none."""
        return (await self.send(calls.enqueue_jobs(idempotency_key=idempotency_key, jobs=list(jobs)))).jobs

    async def job(self, job_id: str) -> JobView:
        return await self.send(calls.get_job(job_id))

    async def jobs(self, **query: Unpack[ListJobsQuery]) -> AsyncIterator[JobView]:
        """All that match, newest first, read page by page (*limit* is the size of one)."""
        while True:
            page = await self.send(calls.list_jobs(**query))
            for one in page.jobs:
                yield one
            if page.next is None:
                return
            query["cursor"] = page.next

    async def wait(self, job_id: str, timeout: Duration | None = None) -> JobView:
        """The job when it has ended, however it ended; `TimeoutError` when it has not by then."""
        waiting = ResultPoll(self._core.world, job_id, timeout)
        while True:
            job = await self.job(job_id)
            seconds = waiting.next_look(job)
            if seconds is None:
                return job
            await self._core.world.sleep_async(seconds)

    async def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """Its result, waited for; `JobFailed` when it ends without one."""
        await self.wait(job_id, timeout)
        return (await self.send(calls.get_job_result(job_id))).result

    async def job_events(self, job_id: str) -> AsyncIterator[EventView]:
        """What happened to it so far, oldest first."""
        page = await self.send(calls.get_job_events(job_id))
        for one in page.events:
            yield one
        while page.next is not None:
            page = await self.send(calls.get_job_events(job_id, cursor=page.next))
            for one in page.events:
                yield one

    async def attempts(self, job_id: str) -> list[AttemptView]:
        """All of them, oldest first, read page by page."""
        page = await self.send(calls.get_job_attempts(job_id))
        found = list(page.attempts)
        while page.next is not None:
            page = await self.send(calls.get_job_attempts(job_id, cursor=page.next))
            found += page.attempts
        return found

    async def explain(self, job_id: str) -> ExplanationView:
        """Why it is not running, and when it is expected to."""
        return await self.send(calls.explain_job(job_id))

    async def retry(
        self,
        job_id: str,
        *,
        from_step: str | None = None,
        args: dict[str, Any] | None = None,
        if_match: str | None = None,
    ) -> Retried:
        return await self.send(calls.retry_job(job_id, if_match=if_match, from_step=from_step, args=args))

    async def cancel(self, job_id: str, *, reason: str = "", if_match: str | None = None) -> MovedJob:
        return await self.send(calls.cancel_job(job_id, if_match=if_match, reason=reason))

    # -- dead letters -------------------------------------------------------------------------------------------------
    async def dead_letters(self, **query: Unpack[ListDeadLettersQuery]) -> AsyncIterator[DeadLetterView]:
        """All that match, oldest first, read page by page."""
        while True:
            page = await self.send(calls.list_dead_letters(**query))
            for one in page.dead_letters:
                yield one
            if page.next is None:
                return
            query["cursor"] = page.next

    async def dead_letter_groups(
        self, **query: Unpack[ListDeadLetterGroupsQuery]
    ) -> list[DeadLetterGroupView]:
        return (await self.send(calls.list_dead_letter_groups(**query))).groups

    async def redrive(self, job_id: str, *, to_queue: str | None = None) -> MovedJob:
        return await self.send(calls.redrive_dead_letter(job_id, to_queue=to_queue))

    async def discard(self, job_id: str, *, reason: str) -> MovedJob:
        return await self.send(calls.discard_dead_letter(job_id, reason=reason))

    # -- everything that matches --------------------------------------------------------------------------------------
    async def count(self, action: OperationAction, filter: OperationFilter) -> int:  # noqa: A002 - as the API names it
        """How many `operate` would begin with now."""
        told = await self.send(calls.begin_operation(action=action, filter=filter, dry_run=True))
        return no_operation(told).matched

    async def operate(
        self,
        action: OperationAction,
        filter: OperationFilter,  # noqa: A002 - as the API names it
        **options: Unpack[OperationOptions],
    ) -> OperationView:
        """Do it to everything that matches; the workers carry it out, `operation` tells how far it is."""
        return no_counting(await self.send(calls.begin_operation(action=action, filter=filter, **options)))

    async def operation(self, operation_id: str) -> OperationView:
        return await self.send(calls.get_operation(operation_id))

    async def cancel_operation(self, operation_id: str) -> OperationView:
        return await self.send(calls.cancel_operation(operation_id))

    # -- lanes and health ---------------------------------------------------------------------------------------------
    async def pause(
        self, kind: ScopeKind, name: str, *, duration: str | None = None, reason: str = ""
    ) -> Paused:
        return await self.send(calls.pause_scope(kind=kind, name=name, duration=duration, reason=reason))

    async def resume(self, kind: ScopeKind, name: str) -> Resumed:
        return await self.send(calls.resume_scope(kind=kind, name=name))

    async def queues(self) -> list[QueueView]:
        """Return all queues, page by page."""
        page = await self.send(calls.list_queues(limit=PAGE))
        found = page.queues
        while page.next is not None:
            page = await self.send(calls.list_queues(cursor=page.next, limit=PAGE))
            found += page.queues
        return found

    async def lanes(self) -> list[LaneView]:
        """Return all lanes, page by page."""
        page = await self.send(calls.list_lanes(limit=PAGE))
        found = page.lanes
        while page.next is not None:
            page = await self.send(calls.list_lanes(cursor=page.next, limit=PAGE))
            found += page.lanes
        return found

    async def breakers(self) -> list[DependencyView]:
        return (await self.send(calls.list_breakers())).breakers

    async def workers(self) -> list[WorkerView]:
        return (await self.send(calls.list_workers())).workers

    async def health(self) -> HealthView:
        return await self.send(calls.get_health())

    # -- events -------------------------------------------------------------------------------------------------------
    async def events(
        self,
        *,
        after: str | None = None,
        kind: str | list[str] | None = None,
        owner: str | None = None,
        job_id: str | None = None,
    ) -> AsyncIterator[StreamEvent]:
        """What happens, as it happens: from now on, or behind the event *after*. It does not end by itself.

        A stream that is cut off is taken up where it was, so nothing is missed and nothing told twice.
        """
        call, reader, fruitless = stream_call(job_id, kind, owner), StreamReader(last=after), 0
        while True:
            ended: ClientError | httpx2.RequestError | None = None
            reader.begin()
            try:
                async with self._http.stream(**self._core.stream_request(call, reader)) as came:
                    if came.status_code != 200 or media_of(came) != MEDIA_TYPE:
                        raise self._core.refusal(came, await came.aread())
                    async for chunk in came.aiter_bytes():
                        fruitless = 0
                        for event in reader.feed(chunk):
                            yield event
            except (ClientError, httpx2.RequestError) as error:
                ended = error
            fruitless += 1
            await self._core.world.sleep_async(self._core.stream_pause(reader, fruitless, ended))
