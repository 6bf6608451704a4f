"""What a Celery worker shows to Prometheus: the engine's metrics of this process, and the alarms of all workers.

Alarms are in the ledger, which all workers share: take the largest, not the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast import Holdfast
from holdfast.logs import Log
from systems.grading.worker.ledger import Ledger
from systems.grading.worker.places import LedgerAway

log = Log("grading.worker")

ALARMS = "grading_alarms"


class Alarms(Collector):
    """`grading_alarms{alarm=…}`: how often a worker could not hand something to the broker, until an operator clears it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            ALARMS, "What the broker did not take after all tries, since the last clear.", labels=["alarm"]
        )
        try:
            for alarm in self._ledger.alarms():
                family.add_metric([alarm.name], alarm.times)
        except LedgerAway as error:
            log.warning("alarm.unavailable", reason=str(error))
        yield family


def serve(app: Holdfast, ledger: Ledger, port: int) -> Callable[[], None]:
    """Answer `/metrics` on this port of 127.0.0.1, from a thread; the answer ends it."""
    registry = CollectorRegistry()
    registry.register(app.metrics)
    registry.register(Alarms(ledger))
    server, thread = start_http_server(port, "127.0.0.1", registry)

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
