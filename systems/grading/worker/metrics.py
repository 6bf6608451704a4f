"""The Prometheus metrics of a Celery worker: the engine's metrics of its process, and all workers' alarms.

All workers report the same alarms, from their shared ledger. Aggregate them with `max`, not `sum`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast import Holdfast
from holdfast.logging import Log
from systems.grading.worker.ledger import Ledger
from systems.grading.worker.ledger_stores import LedgerUnavailable

log = Log("grading.worker")

ALARMS = "grading_alarms"


class Alarms(Collector):
    """Collects `grading_alarms{alarm=…}`: the messages that the broker did not take since the last clear."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            ALARMS, "Messages that the broker did not take, since the last clear.", labels=["alarm"]
        )
        try:
            for alarm in self._ledger.alarms():
                family.add_metric([alarm.name], alarm.times)
        except LedgerUnavailable as error:
            log.warning("alarm.unavailable", reason=str(error))
        yield family


def serve(app: Holdfast, ledger: Ledger, port: int) -> Callable[[], None]:
    """Serve `/metrics` on *port* of 127.0.0.1 in a thread, and return a function that stops it."""
    registry = CollectorRegistry()
    registry.register(app.metrics)
    registry.register(Alarms(ledger))
    server, thread = start_http_server(port, "127.0.0.1", registry)

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
