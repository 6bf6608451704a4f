"""The figures of `stats` in the Prometheus text format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from systems.reports.stats import Stats

#: The name of each metric, its field of `Stats`, and its help text.
_GAUGES = {
    "reports_retry_ratio": ("retry_rate", "Share of reports that were retried"),
    "reports_final_failure_ratio": ("final_failure_rate", "Share of ended reports that failed for good"),
    "reports_time_to_success_mean_seconds": ("mean_seconds_to_success", "Mean time from request to success"),
    "reports_time_to_success_p95_seconds": (
        "p95_seconds_to_success",
        "95th percentile of the time from request to success",
    ),
    "reports_schema_failure_ratio": (
        "schema_failure_share",
        "Share of ended reports whose answer did not fit its schema",
    ),
    "reports_cost_per_success": ("cost_per_success", "Cost of all answers per successful report"),
}
_COUNTERS = {
    "reports_retries": ("retries", "Retries and crashes of reports"),
    "reports_captures": ("captures", "Unusable answers that were captured"),
    "reports_model_calls": ("calls", "Calls of the model that were answered"),
    "reports_cost": ("cost", "Cost of all answers"),
    "reports_cost_of_retries": ("cost_of_retries", "Cost of repeated calls"),
}


class Series:
    """A Prometheus collector for one set of figures."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics in the format that the *accept* header prefers, and its content type."""
        encoder, kind = choose_encoder(accept)
        return encoder(self), kind

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        values: dict[str, Any] = self._stats.as_json()
        for name, (field, help_text) in _GAUGES.items():
            yield GaugeMetricFamily(name, help_text, values[field])
        for name, (field, help_text) in _COUNTERS.items():
            yield CounterMetricFamily(name, help_text, values[field])
        ended = CounterMetricFamily(
            "reports_ended", "Reports that have ended, by status and code", labels=["status", "code"]
        )
        ended.add_metric(["succeeded", ""], self._stats.succeeded)
        for code, number in sorted(self._stats.failed_by_code.items()):
            ended.add_metric(["failed", code], number)
        yield ended
        tokens = CounterMetricFamily("reports_tokens", "Tokens of all answers", labels=["direction"])
        tokens.add_metric(["in"], self._stats.tokens_in)
        tokens.add_metric(["out"], self._stats.tokens_out)
        yield tokens
