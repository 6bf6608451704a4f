"""The figures of `stats` as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from systems.reports.stats import Stats

#: Name → what it says; its value is the field of `Stats` behind the last word.
_GAUGES = {
    "reports_retry_ratio": ("retry_rate", "Share of reports that were tried more than once"),
    "reports_final_failure_ratio": ("final_failure_rate", "Share of ended reports that failed for good"),
    "reports_time_to_success_mean_seconds": ("mean_seconds_to_success", "Mean time from asking to succeeded"),
    "reports_time_to_success_p95_seconds": ("p95_seconds_to_success", "95th percentile of the same"),
    "reports_schema_failure_ratio": (
        "schema_failure_share",
        "Share of ended reports whose answer did not fit its schema",
    ),
    "reports_cost_per_success": ("cost_per_success", "Cost of all answers for each report that succeeded"),
}
_COUNTERS = {
    "reports_retries": ("retries", "Retries and crashes of reports"),
    "reports_captures": ("captures", "Answers that were kept because they could not be used"),
    "reports_model_calls": ("calls", "Calls of the model that were answered"),
    "reports_cost": ("cost", "Cost of all answers"),
    "reports_cost_of_retries": ("cost_of_retries", "Cost of answers that were asked for again"),
}


class Series:
    """A collector for one set of figures."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats

    def text(self, accept: str = "") -> tuple[bytes, str]:
        encoder, kind = choose_encoder(accept)
        return encoder(self), kind

    def collect(self) -> Iterator[Metric]:
        values: dict[str, Any] = self._stats.as_json()
        for name, (field, words) in _GAUGES.items():
            yield GaugeMetricFamily(name, words, values[field])
        for name, (field, words) in _COUNTERS.items():
            yield CounterMetricFamily(name, words, values[field])
        ended = CounterMetricFamily(
            "reports_ended", "Reports that have ended, by how", labels=["status", "code"]
        )
        ended.add_metric(["succeeded", ""], self._stats.succeeded)
        for code, number in sorted(self._stats.failed_by_code.items()):
            ended.add_metric(["failed", code], number)
        yield ended
        tokens = CounterMetricFamily("reports_tokens", "Tokens of all answers", labels=["direction"])
        tokens.add_metric(["in"], self._stats.tokens_in)
        tokens.add_metric(["out"], self._stats.tokens_out)
        yield tokens
