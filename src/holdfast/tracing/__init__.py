"""OpenTelemetry tracing: a job carries the caller's trace, and every attempt is a span that links to it.

This needs only `opentelemetry-api`; the application configures the exporter. It is imported only by apps that
use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.app import Holdfast

__all__ = ["instrument"]


def instrument(app: Holdfast, tracer_provider: Any = None) -> None:
    """Trace the jobs of *app* from now on. The setting `tracing` does the same with the global provider.

    Raises:
        UsageError: `opentelemetry-api` is not installed.
    """
    try:
        from holdfast.tracing.spans import Spans
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("opentelemetry"):
            raise
        raise UsageError("tracing needs opentelemetry-api; pip install 'holdfast[otel]'") from None
    spans = Spans(tracer_provider)
    app.runtime.current_trace = spans.current
    app.middleware(spans.around)
