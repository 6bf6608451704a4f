"""A span for every attempt, by the conventions for messaging: `process mail`, linked and not a child.

A job may run hours after it was enqueued, and several times: as a child of the caller's span it would stretch that trace
over all of it. So each attempt begins a trace of its own, with a link to the caller's span and, from the second one on, to
the attempt before. Where that one's span is to be found is kept in its log, which failed attempts have anyway; an attempt
whose worker was lost has left none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from holdfast import __version__
from holdfast.engine.context import Job
from holdfast.errors import DependencyHeld, Snooze, StoreError

#: How the line begins that says where an attempt's span is.
SAID = "traced"
#: Raised by handlers that want to go on later: nothing has failed.
_NOT_FAILURES = (DependencyHeld, Snooze)


class Spans:
    def __init__(self, provider: Any = None) -> None:
        self._tracer = trace.get_tracer("holdfast", __version__, tracer_provider=provider)

    def current(self) -> str | None:
        """The W3C traceparent of the span that the caller is in, if it is in one."""
        return written(trace.get_current_span().get_span_context())

    async def around(self, job: Job, call: Callable[[], Awaitable[Any]]) -> Any:
        """The middleware: nothing of the arguments, the result or the words of an error becomes an attribute."""
        with self._tracer.start_as_current_span(
            f"process {job.queue}",
            context=Context(),
            kind=SpanKind.CONSUMER,
            links=[Link(context) for context in await _before(job)],
            attributes={
                "messaging.system": "holdfast",
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": job.queue,
                "messaging.message.id": job.id,
                "holdfast.task": job.task,
                "holdfast.attempt": job.attempt,
                "holdfast.max_attempts": job.max_attempts,
            },
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                return await call()
            except _NOT_FAILURES:
                raise
            except BaseException as error:
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR))
                place = written(span.get_span_context())
                if place is not None:
                    job.log(SAID, traceparent=place)
                raise


async def _before(job: Job) -> list[SpanContext]:
    """The spans that led to this one: the caller's, and the last attempt's that is known."""
    found = [read(job.trace)]
    if job.attempt > 1:
        try:
            found.append(_last(line for attempt in await job.attempts() for line in attempt.logs))
        except StoreError:
            pass  # a link less, and the handler runs
    return [context for context in found if context is not None]


def _last(lines: Any) -> SpanContext | None:
    places = [line.rpartition("traceparent=")[2] for line in lines if f" {SAID} traceparent=" in line]
    return read(places[-1]) if places else None


def written(context: SpanContext) -> str | None:
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def read(traceparent: str | None) -> SpanContext | None:
    """What was stored, or None: it may have come through anybody's hands."""
    parts = (traceparent or "").split("-")
    if len(parts) < 4 or [len(part) for part in parts[:4]] != [2, 32, 16, 2]:
        return None
    try:
        trace_id, span_id, flags = (int(part, 16) for part in parts[1:4])
    except ValueError:
        return None
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return context if context.is_valid else None
