"""How long a stop takes, from the signal to the end of the process. `make test` has the same stops without the clock."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from devservices.rabbitmq import RabbitMq
from tests.conftest import installed
from tests.e2e.faults.world import PATIENT, Site
from tests.nightly.conftest import Within
from tests.systems.converter.gateways import RunningGateway
from tests.systems.grading import test_run as grading
from tests.systems.reports import test_run as reports
from tests.systems.screenshots.api import test_run as screenshots

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]


def stop(process: subprocess.Popen[str], number: signal.Signals) -> None:
    process.send_signal(number)
    assert process.wait(60) == 0


def test_a_gateway_stops_within_3_seconds(tmp_path: Path, within: Within) -> None:
    with (
        RunningGateway(tmp_path, "--size", "2") as gateway,
        within(3, "seconds until the gateway has stopped"),
    ):
        gateway.process.terminate()
        gateway.process.wait(60)


def test_reports_stop_within_8_seconds(tmp_path: Path, within: Within) -> None:
    with (
        reports.running(tmp_path / "data") as (process, _),
        within(8, "seconds until reports have stopped"),
    ):
        stop(process, signal.SIGTERM)


@pytest.mark.service
def test_grading_stops_within_10_seconds(tmp_path: Path, within: Within) -> None:
    installed(RabbitMq).close()
    with (
        grading.running(tmp_path / "data") as (process, _),
        within(10, "seconds until grading has stopped"),
    ):
        stop(process, signal.SIGINT)


def test_screenshots_stop_within_4_seconds(tmp_path: Path, chromium: str, within: Within) -> None:
    with (
        screenshots.running(tmp_path / "data") as (process, _),
        within(4, "seconds until screenshots have stopped"),
    ):
        stop(process, signal.SIGINT)


async def test_a_worker_stops_within_its_grace_and_a_few_seconds(
    sqlite_site: Site, within: Within
) -> None:  # E31
    """One handler each on the event loop, in a thread and in a process; none of them ends by itself."""
    await sqlite_site.enqueue("gate", name="never")
    await sqlite_site.enqueue("deaf", name="never")
    await sqlite_site.enqueue("burn", name="fire", seconds=60)
    worker = await sqlite_site.worker(grace="500ms", **PATIENT).ready()
    await sqlite_site.started("fire")
    with within(10, "seconds until a worker with a grace of 0.5 s has stopped"):
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0
