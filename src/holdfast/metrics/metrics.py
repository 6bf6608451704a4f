"""The metrics of an app in this process, as Prometheus reads them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from holdfast import __version__
from holdfast.engine.engine import Engine
from holdfast.engine.observers import Observers
from holdfast.errors import UsageError
from holdfast.jobs.machine import Clock
from holdfast.metrics.counts import Counts, Histogram
from holdfast.metrics.gauges import Gauges, Reading
from holdfast.metrics.names import FAMILIES, LAST_ATTEMPT, MOST_SETS, OTHER
from holdfast.outbox.model import Lag
from holdfast.resilience.breaker import BreakerState

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_STATES = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}

#: Samples of one metric: the values of its labels, and what was measured.
Samples = Iterable[tuple[tuple[str, ...], Any]]


class Metrics:
    """The metrics of one app. All names begin with *prefix*.

    `prometheus_client.REGISTRY.register(app.metrics)` exports them together with an application's own.
    """

    def __init__(
        self,
        engine: Callable[[], Awaitable[Engine]],
        observers: Observers,
        clock: Clock,
        *,
        prefix: str,
        own_queue: Callable[[str], str | None],
        measures: Callable[[], Awaitable[Mapping[str, float]]],
    ) -> None:
        self._prefix, self._engine = prefix, engine
        self.counts, self.gauges = Counts(own_queue), Gauges(engine, clock, measures)
        observers.add(self.counts)

    def serve(self, port: int, host: str = "127.0.0.1") -> AbstractAsyncContextManager[int]:
        """Serve `/metrics`, `/livez`, `/readyz` and `/maintenance` on *port* inside the block.

        This is what `--metrics-port` does. The block gets the port number; a *port* of 0 picks a free one.
        """
        from holdfast.metrics.port import Port

        return Port(self, self._engine).open(host, port)

    async def text(self, accept: str = "") -> tuple[bytes, str]:
        """Return the body and the content type of a scrape with this `Accept` header."""
        encoder = _exposition().choose_encoder(accept)
        await self.gauges.read()
        body: bytes = encoder[0](self)
        return body, encoder[1]

    def describe(self) -> list[Metric]:
        """Return the families without samples, so that a registry knows the names without a collection."""
        return [_family(self._prefix, name) for name in FAMILIES]

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family (E62), also those without samples. Gauges come from the last reading."""
        samples = {**self._count_samples(), **self._gauge_samples(self.gauges.latest)}
        for name in FAMILIES:
            family = _family(self._prefix, name)
            for labels, value in samples.get(name, ()):
                if isinstance(value, Histogram):
                    family.add_metric(labels, _buckets(value), value.sum)
                else:
                    family.add_metric(labels, value)
            yield family
        measures = {} if self.gauges.latest is None else self.gauges.latest.measures
        for name, value in measures.items():
            yield _core().GaugeMetricFamily(self._prefix + name, "A measure of an extension.", value=value)

    # -- samples ----------------------------------------------------------------------------------------------------
    def _count_samples(self) -> Mapping[str, Samples]:
        counts, all_series = self.counts, list(self.counts.series.values())
        attempts: dict[tuple[str, str], int] = defaultdict(int)
        succeeded: dict[tuple[str, str], int] = defaultdict(int)
        for series in all_series:
            for number in range(1, LAST_ATTEMPT + 1):
                label = (series.labels[0], f"{number}+" if number == LAST_ATTEMPT else str(number))
                if series.attempts[number]:
                    attempts[label] += series.attempts[number]
                    succeeded[label] += series.succeeded[number]
        return {
            "jobs_created_total": [(one.labels, one.created) for one in all_series],
            "jobs_completed_total": [(one.labels, sum(one.succeeded)) for one in all_series],
            "jobs_failed_total": _by_code((one.labels, one.failed) for one in all_series),
            "jobs_nonretryable_total": _by_code((one.labels, one.permanent) for one in all_series),
            "job_processing_duration_seconds": [(one.labels, one.durations) for one in all_series],
            "time_to_success_seconds": [(one.labels, one.successes) for one in all_series],
            "attempts_total": attempts.items(),
            "attempts_succeeded_total": succeeded.items(),
            "retries_scheduled_total": [
                ((kind,), counts.retries[kind]) for kind in ("automatic", "manual", "reclaimed", "redriven")
            ],
            "manual_retry_total": [((), counts.manual)],
            "stuck_recovered_total": [((), counts.recovered)],
            "build_info": [((__version__,), 1)],
            "dependency_latency_seconds": [((name,), one) for name, one in list(counts.latencies.items())],
        }

    def _gauge_samples(self, reading: Reading | None) -> Mapping[str, Samples]:
        if reading is None:
            return {}
        # An empty queue has a sample too, or an alert on an absent one would fire.
        depth: dict[tuple[str, ...], int] = {(queue,): 0 for queue in reading.queues}
        active = dict(depth)
        lag: dict[tuple[str, ...], float] = dict.fromkeys(depth, 0.0)
        for lane, line in reading.stats.lines.items():
            label = _bounded(lane.queue, depth)
            depth[label] = depth.get(label, 0) + line.waiting
            active[label] = active.get(label, 0) + line.active
            due_for = 0.0 if line.oldest is None else line.oldest.total_seconds()
            lag[label] = max(lag.get(label, 0.0), due_for)
        states: dict[tuple[str, ...], int] = {}
        opened: dict[tuple[str, ...], float] = defaultdict(float)
        for state in reading.dependency_states:
            label = _bounded(state.dependency.label, states)
            states[label] = max(states.get(label, 0), _STATES[state.breaker.state])
            opened[label] += self.gauges.open_seconds.get(state.dependency.label, 0.0)
        return {
            "queue_depth": depth.items(),
            "queue_lag_seconds": lag.items(),
            "jobs_active": active.items(),
            "jobs_delayed": [((), reading.stats.delayed)],
            "dead_letters": [((), reading.stats.dead_letters)],
            "event_lag_seconds": [((), reading.event_lag.total_seconds())],
            "breaker_state": states.items(),
            "breaker_open_seconds_total": opened.items(),
            **_outbox(reading.lags),
        }


def _outbox(lags: Sequence[Lag]) -> Mapping[str, Samples]:
    """Return the samples of the outbox: none if there is no outbox, and a lag of 0 if nothing waits in it."""
    if not lags:
        return {}
    oldest = max((lag.oldest.total_seconds() for lag in lags if lag.oldest is not None), default=0.0)
    return {
        "outbox_lag_seconds": [((), oldest)],
        "outbox_parked": [((), sum(lag.parked for lag in lags))],
    }


def _bounded(label: str, known: Mapping[tuple[str, ...], Any]) -> tuple[str, ...]:
    return (label,) if (label,) in known or len(known) < MOST_SETS else (OTHER,)


def _by_code(counted: Iterable[tuple[tuple[str, str], Mapping[str, int]]]) -> Samples:
    """Count by code, with at most `MOST_SETS` label sets: further ones share one set."""
    counts: dict[tuple[str, ...], int] = {}
    for labels, codes in counted:
        for code, number in list(codes.items()):
            key: tuple[str, ...] = (*labels, code)
            key = key if key in counts or len(counts) < MOST_SETS else (OTHER,) * len(key)
            counts[key] = counts.get(key, 0) + number
    return counts.items()


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    total, buckets = 0, []
    for bound, number in zip((*histogram.bounds, float("inf")), histogram.buckets, strict=True):
        total += number
        buckets.append(("+Inf" if bound == float("inf") else str(bound), float(total)))
    return buckets


def _family(prefix: str, name: str) -> Any:
    core, family = _core(), FAMILIES[name]
    kinds = {
        "counter": core.CounterMetricFamily,
        "gauge": core.GaugeMetricFamily,
        "histogram": core.HistogramMetricFamily,
    }
    return kinds[family.kind](prefix + name.removesuffix("_total"), family.help, labels=family.labels)


def _core() -> Any:
    try:
        import prometheus_client.metrics_core
    except ModuleNotFoundError:
        raise UsageError(MISSING) from None
    return prometheus_client.metrics_core


def _exposition() -> Any:
    try:
        import prometheus_client.exposition
    except ModuleNotFoundError:
        raise UsageError(MISSING) from None
    return prometheus_client.exposition


MISSING = "metrics need prometheus-client; pip install 'holdfast[server]'"
