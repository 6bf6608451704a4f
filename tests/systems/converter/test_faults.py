"""The fault switch: each fault is what a client meets when a service fails for real."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from lxml import etree

from systems.converter.gateway.faults import Fault, Switch
from systems.converter.samples import plain
from tests.systems.converter.gateways import RunningGateway


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with RunningGateway(tmp_path_factory.mktemp("gateway"), "--size", "1", "--faults") as gateway:
        yield gateway


@pytest.fixture
def gateway(running: RunningGateway) -> Iterator[RunningGateway]:
    yield running
    assert running.http.delete("/faults").json()["fault"] is None
    assert running.convert(plain()).status_code == 200


def test_a_status_is_answered(gateway: RunningGateway) -> None:  # C5
    gateway.fault(status=502)
    assert gateway.convert(plain()).status_code == 502
    assert gateway.http.get("/healthz").status_code == 502


def test_a_status_may_ask_for_time(gateway: RunningGateway) -> None:
    gateway.fault(status=503, retry_after=7)
    assert gateway.convert(plain()).headers["retry-after"] == "7"


def test_latency_comes_on_top(gateway: RunningGateway) -> None:
    gateway.fault(latency_ms=300)
    began = time.monotonic()
    assert gateway.convert(plain()).status_code == 200
    assert time.monotonic() - began >= 0.3


def test_a_connection_is_reset(gateway: RunningGateway) -> None:
    gateway.fault(reset=True)
    with pytest.raises(httpx2.TransportError):
        gateway.convert(plain())


def test_an_answer_never_comes(gateway: RunningGateway) -> None:
    gateway.fault(hang=True)
    with pytest.raises(httpx2.TimeoutException):
        gateway.convert(plain(), timeout=0.5)


def test_what_hangs_is_let_go_when_the_fault_is_switched_off(gateway: RunningGateway) -> None:
    struck = gateway.http.get("/faults").json()["struck"]
    gateway.fault(hang=True)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(gateway.convert, plain())
        while gateway.http.get("/faults").json()["struck"] == struck:
            time.sleep(0.01)  # until the request has arrived
        gateway.http.delete("/faults")
        with pytest.raises(httpx2.TransportError):
            asked.result()


def test_an_answer_is_garbage(gateway: RunningGateway) -> None:
    gateway.fault(garbage=True)
    answer = gateway.convert(plain())
    assert answer.status_code == 200
    with pytest.raises(etree.XMLSyntaxError):
        etree.fromstring(answer.content)


def test_an_answer_breaks_off(gateway: RunningGateway) -> None:
    gateway.fault(truncate=True)
    with pytest.raises(httpx2.RemoteProtocolError):
        gateway.convert(plain())


def test_a_share_of_the_requests_fails(gateway: RunningGateway) -> None:
    gateway.fault(status=500, percent=30)
    statuses = [gateway.convert(plain()).status_code for _ in range(10)]
    assert statuses.count(500) == 3
    assert statuses.count(200) == 7


def test_a_fault_ends_when_its_time_is_up(gateway: RunningGateway) -> None:
    gateway.http.post("/faults", json={"status": 500, "seconds": 0.2}).raise_for_status()
    while gateway.http.get("/faults").json()["fault"] is not None:
        time.sleep(0.01)
    assert gateway.convert(plain()).status_code == 200


def test_nonsense_is_not_switched_on(gateway: RunningGateway) -> None:
    refused: list[Any] = [{"status": 200}, {"percent": 101}, {"explode": True}, [], "x"]
    for nonsense in refused:
        answer = gateway.http.post("/faults", json=nonsense)
        assert (answer.status_code, answer.json()["code"]) == (422, "VALIDATION_ERROR")


async def test_the_share_is_counted_out_the_same_way_each_time() -> None:
    switch = Switch()
    switch.set(Fault(status=500, percent=12.5))
    struck = [nth for nth in range(1, 17) if switch.take("/convert")]
    assert struck == [8, 16]
