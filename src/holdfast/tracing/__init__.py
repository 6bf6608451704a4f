"""OpenTelemetry: the caller's trace travels with the job, and every attempt is a span that links to it.

Needs `opentelemetry-api` alone; where spans go is the application's matter, as always. Nothing here is imported by an app that
does not ask for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.app import Holdfast

__all__ = ["instrument"]


def instrument(app: Holdfast, tracer_provider: Any = None) -> None:
    """Trace the jobs of *app* from now on. The setting `tracing` does the same, with the global provider."""
    try:
        from holdfast.tracing.spans import Spans
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("opentelemetry"):
            raise
        raise UsageError("tracing needs opentelemetry-api; pip install 'holdfast[otel]'") from None
    spans = Spans(tracer_provider)
    app.current_trace = spans.current
    app.middleware(spans.around)
