"""`Client`: the API from plain code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


class Client:
    """A Holdfast API at *url*, for plain code. Safe to share among threads. Close it, or use it in a `with` block.

    What may be sent again is, as *patience* says: after a lost connection, 429 or 503. Whatever changes something carries
    an Idempotency-Key, so that it happens once however often it is sent. What is not a verb here is sent by
    `client.send(calls.rotate_key(…))`. Errors are those of `holdfast.client.errors`.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: Duration = "10s",
        patience: RequestRetries | None = None,
        transport: httpx2.BaseTransport | None = None,
        surroundings: Environment | None = None,
    ) -> None:
        self._core = Core(url, key, timeout, patience, surroundings)
        self._http = httpx2.Client(transport=transport, **self._core.options())

    def __repr__(self) -> str:
        return f"<Client of {self._core.url}>"  # without its key

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # -- any call -----------------------------------------------------------------------------------------------------
    def send(self, call: Call[T]) -> T:
        """Send a call of `holdfast.client.calls`; what it is answered by."""
        return self.exchange(call).value

    def exchange(self, call: Call[T]) -> ApiResponse[T]:
        """The same, with the status and headers of the answer."""
        request, attempt = self._core.request(call), 1
        while True:
            try:
                return self._core.read(call, self._http.request(**request))
            except (ClientError, httpx2.RequestError) as error:
                self._core.world.sleep(self._core.pause(call, attempt, error))
            attempt += 1

    # -- jobs ---------------------------------------------------------------------------------------------------------
    def enqueue(
        self,
        task: str,
        args: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> EnqueuedView:
        """A new job. Give an *idempotency_key* of your own where your program may itself be run again."""
        return self.send(
            calls.enqueue_job(idempotency_key=idempotency_key, task=task, args=dict(args or {}), **options)
        )

    def enqueue_many(
        self, jobs: Sequence[JobRequest], *, idempotency_key: str | None = None
    ) -> list[EnqueuedView]:
        """All of them, or none."""
        return self.send(calls.enqueue_jobs(idempotency_key=idempotency_key, jobs=list(jobs))).jobs

    def job(self, job_id: str) -> JobView:
        return self.send(calls.get_job(job_id))

    def jobs(self, **query: Unpack[ListJobsQuery]) -> Iterator[JobView]:
        """All that match, newest first, read page by page (*limit* is the size of one)."""
        while True:
            page = self.send(calls.list_jobs(**query))
            yield from page.jobs
            if page.next is None:
                return
            query["cursor"] = page.next

    def wait(self, job_id: str, timeout: Duration | None = None) -> JobView:
        """The job when it has ended, however it ended; `TimeoutError` when it has not by then."""
        waiting = ResultPoll(self._core.world, job_id, timeout)
        while True:
            job = self.job(job_id)
            seconds = waiting.next_look(job)
            if seconds is None:
                return job
            self._core.world.sleep(seconds)

    def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """Its result, waited for; `JobFailed` when it ends without one."""
        self.wait(job_id, timeout)
        return self.send(calls.get_job_result(job_id)).result

    def job_events(self, job_id: str) -> Iterator[EventView]:
        """What happened to it so far, oldest first."""
        page = self.send(calls.get_job_events(job_id))
        yield from page.events
        while page.next is not None:
            page = self.send(calls.get_job_events(job_id, cursor=page.next))
            yield from page.events

    def attempts(self, job_id: str) -> list[AttemptView]:
        """All of them, oldest first, read page by page."""
        page = self.send(calls.get_job_attempts(job_id))
        found = list(page.attempts)
        while page.next is not None:
            page = self.send(calls.get_job_attempts(job_id, cursor=page.next))
            found += page.attempts
        return found

    def explain(self, job_id: str) -> ExplanationView:
        """Why it is not running, and when it is expected to."""
        return self.send(calls.explain_job(job_id))

    def retry(
        self,
        job_id: str,
        *,
        from_step: str | None = None,
        args: dict[str, Any] | None = None,
        if_match: str | None = None,
    ) -> Retried:
        return self.send(calls.retry_job(job_id, if_match=if_match, from_step=from_step, args=args))

    def cancel(self, job_id: str, *, reason: str = "", if_match: str | None = None) -> MovedJob:
        return self.send(calls.cancel_job(job_id, if_match=if_match, reason=reason))

    # -- dead letters -------------------------------------------------------------------------------------------------
    def dead_letters(self, **query: Unpack[ListDeadLettersQuery]) -> Iterator[DeadLetterView]:
        """All that match, oldest first, read page by page."""
        while True:
            page = self.send(calls.list_dead_letters(**query))
            yield from page.dead_letters
            if page.next is None:
                return
            query["cursor"] = page.next

    def dead_letter_groups(self, **query: Unpack[ListDeadLetterGroupsQuery]) -> list[DeadLetterGroupView]:
        return self.send(calls.list_dead_letter_groups(**query)).groups

    def redrive(self, job_id: str, *, to_queue: str | None = None) -> MovedJob:
        return self.send(calls.redrive_dead_letter(job_id, to_queue=to_queue))

    def discard(self, job_id: str, *, reason: str) -> MovedJob:
        return self.send(calls.discard_dead_letter(job_id, reason=reason))

    # -- everything that matches --------------------------------------------------------------------------------------
    def count(self, action: OperationAction, filter: OperationFilter) -> int:  # noqa: A002 - as the API names it
        """How many `operate` would begin with now."""
        told = self.send(calls.begin_operation(action=action, filter=filter, dry_run=True))
        return no_operation(told).matched

    def operate(
        self,
        action: OperationAction,
        filter: OperationFilter,  # noqa: A002 - as the API names it
        **options: Unpack[OperationOptions],
    ) -> OperationView:
        """Do it to everything that matches; the workers carry it out, `operation` tells how far it is."""
        return no_counting(self.send(calls.begin_operation(action=action, filter=filter, **options)))

    def operation(self, operation_id: str) -> OperationView:
        return self.send(calls.get_operation(operation_id))

    def cancel_operation(self, operation_id: str) -> OperationView:
        return self.send(calls.cancel_operation(operation_id))

    # -- lanes and health ---------------------------------------------------------------------------------------------
    def pause(self, kind: ScopeKind, name: str, *, duration: str | None = None, reason: str = "") -> Paused:
        return self.send(calls.pause_scope(kind=kind, name=name, duration=duration, reason=reason))

    def resume(self, kind: ScopeKind, name: str) -> Resumed:
        return self.send(calls.resume_scope(kind=kind, name=name))

    def queues(self) -> list[QueueView]:
        """Return all queues, page by page."""
        page = self.send(calls.list_queues(limit=PAGE))
        found = page.queues
        while page.next is not None:
            page = self.send(calls.list_queues(cursor=page.next, limit=PAGE))
            found += page.queues
        return found

    def lanes(self) -> list[LaneView]:
        """Return all lanes, page by page."""
        page = self.send(calls.list_lanes(limit=PAGE))
        found = page.lanes
        while page.next is not None:
            page = self.send(calls.list_lanes(cursor=page.next, limit=PAGE))
            found += page.lanes
        return found

    def breakers(self) -> list[DependencyView]:
        return self.send(calls.list_breakers()).breakers

    def workers(self) -> list[WorkerView]:
        return self.send(calls.list_workers()).workers

    def health(self) -> HealthView:
        return self.send(calls.get_health())

    # -- events -------------------------------------------------------------------------------------------------------
    def events(
        self,
        *,
        after: str | None = None,
        kind: str | list[str] | None = None,
        owner: str | None = None,
        job_id: str | None = None,
    ) -> Iterator[StreamEvent]:
        """What happens, as it happens: from now on, or behind the event *after*. It does not end by itself.

        A stream that is cut off is taken up where it was, so nothing is missed and nothing told twice.
        """
        call, reader, fruitless = stream_call(job_id, kind, owner), StreamReader(last=after), 0
        while True:
            ended: ClientError | httpx2.RequestError | None = None
            reader.begin()
            try:
                with self._http.stream(**self._core.stream_request(call, reader)) as came:
                    if came.status_code != 200 or media_of(came) != MEDIA_TYPE:
                        raise self._core.refusal(came, came.read())
                    for chunk in came.iter_bytes():
                        fruitless = 0
                        yield from reader.feed(chunk)
            except (ClientError, httpx2.RequestError) as error:
                ended = error
            fruitless += 1
            self._core.world.sleep(self._core.stream_pause(reader, fruitless, ended))
