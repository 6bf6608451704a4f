"""The methods of both clients, written once. A client says how a request is sent, and how to wait."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar, Unpack

import httpx2

from holdfast.client import calls
from holdfast.client.call import Call, ListPage
from holdfast.client.core import (
    PAGE,
    ApiResponse,
    Core,
    ResultPoll,
    require_operation,
    require_preview,
    stream_call,
)
from holdfast.client.errors import ClientError
from holdfast.client.event_stream import StreamEvent, StreamReader
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
    OperationPreview,
    OperationView,
    Paused,
    QueueView,
    Resumed,
    Retried,
    ScopeKind,
    WorkerView,
)
from holdfast.values.duration import Duration

T = TypeVar("T")
P = TypeVar("P", bound=ListPage)


class Verbs(ABC):
    """The methods of `AsyncClient`, and of `Client` without `await`."""

    _core: Core

    @abstractmethod
    async def _request(self, request: dict[str, Any]) -> httpx2.Response:
        """Send a request and return its response."""

    @abstractmethod
    def _chunks(self, request: dict[str, Any]) -> AsyncGenerator[bytes]:
        """Open a stream and yield its bytes. Raises the refusal if the response is no stream."""

    @abstractmethod
    async def _sleep(self, seconds: float) -> None: ...

    # -- any call -----------------------------------------------------------------------------------------------------
    async def send(self, call: Call[T]) -> T:
        """Send a call of `holdfast.client.calls` and return the body of the response."""
        return (await self.exchange(call)).value

    async def exchange(self, call: Call[T]) -> ApiResponse[T]:
        """Send a call and return its response with status and headers."""
        request, attempt = self._core.request(call), 1
        while True:
            try:
                return self._core.read(call, await self._request(request))
            except (ClientError, httpx2.RequestError) as error:
                await self._sleep(self._core.pause(call, attempt, error))
            attempt += 1

    async def _pages(self, call: Callable[..., Call[P]], query: Mapping[str, Any]) -> AsyncIterator[P]:
        """Yield the pages of a list, from the first or the cursor in *query* to the last."""
        page = await self.send(call(**query))
        yield page
        while page.next is not None:
            page = await self.send(call(**{**query, "cursor": page.next}))
            yield page

    # -- jobs ---------------------------------------------------------------------------------------------------------
    async def enqueue(
        self,
        task: str,
        args: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> EnqueuedView:
        """Enqueue a job. Give an *idempotency_key* if your program itself may run again."""
        return await self.send(
            calls.enqueue_job(idempotency_key=idempotency_key, task=task, args=dict(args or {}), **options)
        )

    async def enqueue_many(
        self, jobs: Sequence[JobRequest], *, idempotency_key: str | None = None
    ) -> list[EnqueuedView]:
        """Enqueue all *jobs*, or none of them."""
        return (await self.send(calls.enqueue_jobs(idempotency_key=idempotency_key, jobs=list(jobs)))).jobs

    async def job(self, job_id: str) -> JobView:
        return await self.send(calls.get_job(job_id))

    async def jobs(self, **query: Unpack[ListJobsQuery]) -> AsyncIterator[JobView]:
        """Yield all matching jobs, newest first, read page by page. *limit* is the size of a page."""
        async for page in self._pages(calls.list_jobs, query):
            for one in page.jobs:
                yield one

    async def wait(self, job_id: str, timeout: Duration | None = None) -> JobView:
        """Wait until the job has ended, and return it.

        Raises:
            TimeoutError: It has not ended within *timeout*.
        """
        poll = ResultPoll(self._core.environment, job_id, timeout)
        while True:
            job = await self.job(job_id)
            seconds = poll.next_pause(job)
            if seconds is None:
                return job
            await self._sleep(seconds)

    async def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """Wait until the job has ended, and return its result.

        Raises:
            JobFailed: It ended without a result.
            TimeoutError: It has not ended within *timeout*.
        """
        await self.wait(job_id, timeout)
        return (await self.send(calls.get_job_result(job_id))).result

    async def job_events(self, job_id: str) -> AsyncIterator[EventView]:
        """Yield the events of the job so far, oldest first."""
        async for page in self._pages(partial(calls.get_job_events, job_id), {}):
            for one in page.events:
                yield one

    async def attempts(self, job_id: str) -> list[AttemptView]:
        """Return all attempts of the job, oldest first."""
        pages = self._pages(partial(calls.get_job_attempts, job_id), {})
        return [one async for page in pages for one in page.attempts]

    async def explain(self, job_id: str) -> ExplanationView:
        """Explain why the job is not running, and when it is expected to run."""
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
        """Yield all matching dead letters, oldest first, read page by page."""
        async for page in self._pages(calls.list_dead_letters, query):
            for one in page.dead_letters:
                yield one

    async def dead_letter_groups(
        self, **query: Unpack[ListDeadLetterGroupsQuery]
    ) -> list[DeadLetterGroupView]:
        return (await self.send(calls.list_dead_letter_groups(**query))).groups

    async def redrive(self, job_id: str, *, to_queue: str | None = None) -> MovedJob:
        return await self.send(calls.redrive_dead_letter(job_id, to_queue=to_queue))

    async def discard(self, job_id: str, *, reason: str) -> MovedJob:
        return await self.send(calls.discard_dead_letter(job_id, reason=reason))

    # -- everything that matches --------------------------------------------------------------------------------------
    async def preview(
        self,
        action: OperationAction,
        filter: OperationFilter,  # noqa: A002 - as the API names it
        **options: Unpack[OperationOptions],
    ) -> OperationPreview:
        """Return what `operate` with the same options would do now."""
        counted = await self.send(
            calls.begin_operation(action=action, filter=filter, dry_run=True, **options)
        )
        return require_preview(counted)

    async def operate(
        self,
        action: OperationAction,
        filter: OperationFilter,  # noqa: A002 - as the API names it
        **options: Unpack[OperationOptions],
    ) -> OperationView:
        """Apply *action* to everything that matches *filter*.

        Workers carry it out; `operation` returns its progress.
        """
        return require_operation(
            await self.send(calls.begin_operation(action=action, filter=filter, **options))
        )

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
        pages = self._pages(calls.list_queues, {"limit": PAGE})
        return [one async for page in pages for one in page.queues]

    async def lanes(self) -> list[LaneView]:
        """Return all lanes, page by page."""
        pages = self._pages(calls.list_lanes, {"limit": PAGE})
        return [one async for page in pages for one in page.lanes]

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
        """Yield events as they happen, from now on or after the event *after*.

        The stream does not end by itself. After a lost connection it continues where it was, so no event is
        missed or repeated.
        """
        call, reader, failures = stream_call(job_id, kind, owner), StreamReader(last=after), 0
        while True:
            error_seen: ClientError | httpx2.RequestError | None = None
            reader.begin()
            try:
                async with aclosing(self._chunks(self._core.stream_request(call, reader))) as chunks:
                    async for chunk in chunks:
                        failures = 0
                        for event in reader.feed(chunk):
                            yield event
            except (ClientError, httpx2.RequestError) as error:
                error_seen = error
            failures += 1
            await self._sleep(self._core.stream_pause(reader, failures, error_seen))
