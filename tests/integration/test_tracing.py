"""Traces (E64): the caller's context travels with the job, every attempt is a span, and spans are linked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

from holdfast import Holdfast, Retryable, Snooze, UsageError
from holdfast.tracing import instrument
from holdfast.tracing.spans import format_traceparent, parse_traceparent
from tests.apps import SOON, work


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def attempts(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name.startswith("process")]


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def context(span: ReadableSpan) -> SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def ids(spans: Sequence[ReadableSpan]) -> list[int]:
    return [context(span).span_id for span in spans]


async def test_every_attempt_links_to_the_caller_and_to_the_attempt_before(
    app: Holdfast, exporter: InMemorySpanExporter, provider: TracerProvider
) -> None:  # E64
    instrument(app, provider)
    tries = 0

    @app.task(queue="mail", retry=SOON)
    async def flaky(secret: str) -> str:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Retryable(f"no luck with {secret}")
        return secret

    async with app:
        with provider.get_tracer("shop").start_as_current_span("order") as order:
            handle = await flaky.enqueue("canary-4711")
        await work(app)
        assert await handle.result() == "canary-4711"
    caller = order.get_span_context()
    first, second, third = attempts(exporter)
    assert linked(first) == [caller.span_id]
    assert linked(second) == [caller.span_id, *ids([first])]
    assert linked(third) == [caller.span_id, *ids([second])]
    assert {span.name for span in (first, second, third)} == {"process mail"}
    assert all(span.kind is SpanKind.CONSUMER and span.parent is None for span in (first, second, third))
    assert len({context(span).trace_id for span in (first, second, third)} | {caller.trace_id}) == 4
    assert [span.status.status_code for span in (first, second, third)] == [
        StatusCode.ERROR,
        StatusCode.ERROR,
        StatusCode.UNSET,
    ]
    assert dict(third.attributes or {}) == {
        "messaging.system": "holdfast",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": handle.id,
        "holdfast.task": "flaky",
        "holdfast.attempt": 3,
        "holdfast.max_attempts": 3,
    }
    assert (first.attributes or {})["error.type"] == "Retryable"
    assert "canary-4711" not in "".join(span.to_json() for span in exporter.get_finished_spans())


async def test_what_a_handler_does_is_inside_its_attempts_span(
    app: Holdfast, exporter: InMemorySpanExporter, provider: TracerProvider
) -> None:  # E64
    instrument(app, provider)
    tracer = provider.get_tracer("shop")

    @app.task
    async def inner() -> None: ...

    @app.task
    async def outer() -> None:
        with tracer.start_as_current_span("ask the bank"):
            await inner.enqueue()

    @app.task
    def in_a_thread() -> None:
        tracer.start_span("count").end()

    async with app:
        await outer.enqueue()
        await in_a_thread.enqueue()
        await work(app)
    spans = {
        str((span.attributes or {}).get("holdfast.task", span.name)): span for span in attempts(exporter)
    }
    others = {span.name: span for span in exporter.get_finished_spans()}
    asked, counted = others["ask the bank"], others["count"]
    assert asked.parent is not None
    assert counted.parent is not None
    assert [asked.parent.span_id] == ids([spans["outer"]])
    assert [counted.parent.span_id] == ids([spans["in_a_thread"]])
    assert linked(spans["inner"]) == ids([asked])
    assert linked(spans["outer"]) == []


async def test_a_job_that_is_put_off_has_not_failed(
    app: Holdfast, exporter: InMemorySpanExporter, provider: TracerProvider
) -> None:  # E64
    instrument(app, provider)
    asked = 0

    @app.task
    async def later() -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise Snooze("1ms")

    async with app:
        await later.enqueue()
        await work(app)
    assert [span.status.status_code for span in attempts(exporter)] == [StatusCode.UNSET, StatusCode.UNSET]


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "nonsense",
        "00-0-0-0",
        f"00-{'0' * 32}-{'0' * 16}-00",
        f"00-{'x' * 32}-{'1' * 16}-01",
        "-" * 60,
    ],
)
def test_a_stored_context_that_cannot_be_read_is_no_link(text: str | None) -> None:  # E64
    assert parse_traceparent(text) is None


def test_a_context_is_written_as_w3c_says_and_read_back() -> None:  # E64
    text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    context = parse_traceparent(text)
    assert context is not None
    assert format_traceparent(context) == text


def test_an_app_without_tracing_does_not_import_opentelemetry() -> None:  # E64
    code = (
        "import sys\nfrom holdfast import Holdfast\napp = Holdfast('memory://')\n"
        "print(sorted(name for name in sys.modules if name.startswith('opentelemetry')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_setting_switches_it_on(monkeypatch: pytest.MonkeyPatch) -> None:  # E64
    assert len(Holdfast("memory://", tracing=True).runtime.declared.middleware) == 1
    monkeypatch.setenv("HOLDFAST_TRACING", "on")
    assert len(Holdfast("memory://").runtime.declared.middleware) == 1
    assert len(Holdfast("memory://", tracing="off").runtime.declared.middleware) == 0  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="tracing is 'maybe'; it is one of on, off"):
        Holdfast("memory://", tracing="maybe")  # type: ignore[arg-type]


def test_without_the_library_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:  # E64
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "holdfast.tracing.spans", raising=False)
    with pytest.raises(UsageError, match=r"pip install 'holdfast\[otel\]'"):
        instrument(Holdfast("memory://"))
