"""The metrics of an app in this process, as Prometheus reads them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.domain.breaker import BreakerState
from holdfast.domain.outbox import Lag
from holdfast.engine.engine import Engine
from holdfast.engine.observers import Observers
from holdfast.engine.ports import Clock
from holdfast.errors import UsageError
from holdfast.metrics.counts import Counts, Histogram
from holdfast.metrics.gauges import Gauges, Seen
from holdfast.metrics.names import FAMILIES, LAST_ATTEMPT, MOST_SETS, OTHER

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_STATES = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}

#: Samples of one metric: the values of its labels, and what was measured.
Samples = Iterable[tuple[tuple[str, ...], Any]]


class Metrics:
    """Counts from now on, under names that begin with *prefix*. `prometheus_client.REGISTRY.register(app.metrics)` puts them beside an application's own."""

    def __init__(
        self,
        engine: Callable[[], Awaitable[Engine]],
        observers: Observers,
        clock: Clock,
        *,
        prefix: str,
        own_queue: Callable[[str], str | None],
    ) -> None:
        self._prefix = prefix
        self.counts, self.gauges = Counts(own_queue), Gauges(engine, clock)
        observers.add(self.counts)

    async def text(self, accept: str = "") -> tuple[bytes, str]:
        """What a scrape is answered, and its content type, by the `Accept` that it came with."""
        encoder = _exposition().choose_encoder(accept)
        await self.gauges.look()
        body: bytes = encoder[0](self)
        return body, encoder[1]

    def describe(self) -> list[Metric]:
        """For a registry: nothing has to be collected to know the names."""
        return [_family(self._prefix, name) for name in FAMILIES]

    def collect(self) -> Iterator[Metric]:
        """Every family of E62, those without samples too. The gauges are as of the last look."""
        samples = {**self._counted(), **self._seen(self.gauges.seen)}
        for name in FAMILIES:
            family = _family(self._prefix, name)
            for labels, value in samples.get(name, ()):
                if isinstance(value, Histogram):
                    family.add_metric(labels, _buckets(value), value.sum)
                else:
                    family.add_metric(labels, value)
            yield family

    # -- samples ----------------------------------------------------------------------------------------------------
    def _counted(self) -> Mapping[str, Samples]:
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
            "jobs_nonretryable_total": _by_code((one.labels, one.hopeless) for one in all_series),
            "job_processing_duration_seconds": [(one.labels, one.durations) for one in all_series],
            "time_to_success_seconds": [(one.labels, one.successes) for one in all_series],
            "attempts_total": attempts.items(),
            "attempts_succeeded_total": succeeded.items(),
            "retries_scheduled_total": [
                ((kind,), counts.retries[kind]) for kind in ("automatic", "manual", "reclaimed", "redriven")
            ],
            "manual_retry_total": [((), counts.manual)],
            "stuck_recovered_total": [((), counts.recovered)],
            "dependency_latency_seconds": [((name,), one) for name, one in list(counts.latencies.items())],
        }

    def _seen(self, seen: Seen | None) -> Mapping[str, Samples]:
        if seen is None:
            return {}
        # A queue in which nothing waits has a sample, too: an alert on a missing one would ring.
        depth: dict[tuple[str, ...], int] = {(queue,): 0 for queue in seen.queues}
        active = dict(depth)
        for lane, line in seen.stats.lines.items():
            label = _bounded(lane.queue, depth)
            depth[label] = depth.get(label, 0) + line.waiting
            active[label] = active.get(label, 0) + line.active
        states: dict[tuple[str, ...], int] = {}
        opened: dict[tuple[str, ...], float] = defaultdict(float)
        for state_of_dependency in seen.dependency_states:
            label = _bounded(state_of_dependency.dependency.label, states)
            states[label] = max(states.get(label, 0), _STATES[state_of_dependency.breaker.state])
            opened[label] += self.gauges.open_seconds.get(state_of_dependency.dependency.label, 0.0)
        return {
            "queue_depth": depth.items(),
            "jobs_active": active.items(),
            "jobs_delayed": [((), seen.stats.delayed)],
            "dead_letters": [((), seen.stats.dead_letters)],
            "event_lag_seconds": [((), seen.event_lag.total_seconds())],
            "breaker_state": states.items(),
            "breaker_open_seconds_total": opened.items(),
            **_outbox(seen.lags),
        }


def _outbox(lags: Sequence[Lag]) -> Mapping[str, Samples]:
    """No outbox, no value; one in which nothing waits has no lag."""
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
    found: dict[tuple[str, ...], int] = {}
    for labels, codes in counted:
        for code, number in list(codes.items()):
            key: tuple[str, ...] = (*labels, code)
            key = key if key in found or len(found) < MOST_SETS else (OTHER,) * len(key)
            found[key] = found.get(key, 0) + number
    return found.items()


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
