"""A span for every attempt, by the conventions for messaging: named `process mail`, linked and not a child.

A job may run hours after it was enqueued, and several times. As a child of the caller's span it would stretch
that trace over all of this. So each attempt begins its own trace, with a link to the caller's span and, from
the second attempt on, to the attempt before. The context of that span is stored in the attempt's log, which
failed attempts have anyway. An attempt whose worker was lost leaves none.
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

#: The first word of the log line that holds the context of an attempt's span.
LOG_EVENT = "traced"
#: Raised by handlers that want to continue later: nothing has failed.
_NOT_FAILURES = (DependencyHeld, Snooze)


class Spans:
    """Creates the spans of attempts with *provider*, by default the global one."""

    def __init__(self, provider: Any = None) -> None:
        self._tracer = trace.get_tracer("holdfast", __version__, tracer_provider=provider)

    def current(self) -> str | None:
        """Return the W3C traceparent of the current span, if there is one."""
        return format_traceparent(trace.get_current_span().get_span_context())

    async def around(self, job: Job, call: Callable[[], Awaitable[Any]]) -> Any:
        """Run an attempt in a span. This is a middleware.

        No part of the arguments, of the result or of an error's text becomes an attribute.
        """
        with self._tracer.start_as_current_span(
            f"process {job.queue}",
            context=Context(),
            kind=SpanKind.CONSUMER,
            links=[Link(context) for context in await _linked_spans(job)],
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
                traceparent = format_traceparent(span.get_span_context())
                if traceparent is not None:
                    job.log(LOG_EVENT, traceparent=traceparent)
                raise


async def _linked_spans(job: Job) -> list[SpanContext]:
    """Return the spans to link to: the caller's, and that of the last attempt that recorded one."""
    contexts = [parse_traceparent(job.trace)]
    if job.attempt > 1:
        try:
            contexts.append(_last_logged(line for attempt in await job.attempts() for line in attempt.logs))
        except StoreError:
            pass  # the handler runs all the same, with one link less
    return [context for context in contexts if context is not None]


def _last_logged(lines: Any) -> SpanContext | None:
    traceparents = [
        line.rpartition("traceparent=")[2] for line in lines if f" {LOG_EVENT} traceparent=" in line
    ]
    return parse_traceparent(traceparents[-1]) if traceparents else None


def format_traceparent(context: SpanContext) -> str | None:
    """Return *context* as a W3C traceparent, or None if it is not valid."""
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def parse_traceparent(traceparent: str | None) -> SpanContext | None:
    """Return the span context of a W3C *traceparent*, or None if it is not valid.

    Callers may send any text.
    """
    parts = (traceparent or "").split("-")
    if len(parts) < 4 or [len(part) for part in parts[:4]] != [2, 32, 16, 2]:
        return None
    try:
        trace_id, span_id, flags = (int(part, 16) for part in parts[1:4])
    except ValueError:
        return None
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return context if context.is_valid else None
