"""A worker's own door: four questions are answered, anything else is turned away, and nobody can hold it open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast import Holdfast, StoreUnavailable, UsageError
from holdfast.health import inputs as health_inputs
from holdfast.maintenance.tasks import Maintenance
from holdfast.metrics import port as port_module
from holdfast.metrics.port import LONGEST_HEAD, Port


@pytest.fixture
async def watched(app: Holdfast) -> AsyncIterator[tuple[Holdfast, int]]:
    async with app, Port(app.metrics, app.runtime.engine).open("127.0.0.1", 0) as port:
        yield app, port


async def ask(port: int, request: bytes) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(20):
        answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n".encode()


async def test_a_scrape_a_pulse_and_readiness_are_answered(
    watched: tuple[Holdfast, int], monkeypatch: pytest.MonkeyPatch
) -> None:  # E62 E65
    monkeypatch.setattr(
        health_inputs, "READY_WITHIN", 20.0
    )  # on a busy machine it may take more than a second
    _, port = watched
    status, text = await ask(port, get("/metrics"))
    assert status == 200
    assert "jobs_delayed 0.0" in text
    assert await ask(port, get("/livez")) == (200, "alive\n")
    assert await ask(port, get("/readyz?verbose")) == (200, "ready\n")


async def test_each_duty_has_a_line(watched: tuple[Holdfast, int]) -> None:  # E65
    app, port = watched
    assert await ask(port, get("/maintenance")) == (200, "no maintenance runs in this process\n")
    outcomes, tired = [None, StoreUnavailable("cannot reach postgresql://me:hunter2@db")], asyncio.Event()

    async def sweep() -> None:
        if not outcomes:
            tired.set()
            await asyncio.Event().wait()
        if (error := outcomes.pop(0)) is not None:
            raise error

    maintenance = Maintenance(await app.runtime.engine())
    maintenance.add("sweep", 0.01, sweep)
    await app.queues.pause("stuck", kind="maintenance")
    running = asyncio.create_task(maintenance.run())
    async with asyncio.timeout(20):
        await tired.wait()
    status, text = await ask(port, get("/maintenance"))
    assert status == 200
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    *_, sweeping = text.splitlines()
    [stuck] = [line for line in text.splitlines() if line.startswith("stuck: every ")]
    assert stuck.endswith("done 0 times, failed 0 times; paused")
    why = "cannot reach postgresql://me:***@db"
    assert sweeping == f"sweep: every 0.01 s, done 1 times, failed 1 times; last error: {why}"
    assert await ask(port, get("/maintenance")) == (200, "no maintenance runs in this process\n")


async def test_a_store_that_is_away_makes_it_not_ready_and_not_dead(
    watched: tuple[Holdfast, int],
) -> None:  # E65
    app, port = watched
    store = (await app.runtime.engine()).store

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("cannot reach postgresql://me:hunter2@db")

    store.transact = away  # type: ignore[method-assign,assignment]
    assert await ask(port, get("/readyz")) == (503, "the database does not answer\n")
    assert (await ask(port, get("/livez")))[0] == 200


async def test_a_store_that_hangs_makes_it_not_ready_within_a_second(
    watched: tuple[Holdfast, int], monkeypatch: pytest.MonkeyPatch
) -> None:  # E65
    monkeypatch.setattr(port_module, "PATIENCE", 3600.0)  # the port itself hangs up on nobody before
    app, port = watched
    store = (await app.runtime.engine()).store

    async def hang(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    store.transact = hang  # type: ignore[method-assign,assignment]
    assert health_inputs.READY_WITHIN == 1
    assert (await ask(port, get("/readyz")))[0] == 503


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/"), 404),
        (get("/metrics/../etc/passwd"), 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"\x16\x03\x01 nonsense\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /" + b"x" * (2 * LONGEST_HEAD) + b" HTTP/1.1\r\n\r\n", 400),
    ],
)
async def test_anything_else_is_turned_away(
    watched: tuple[Holdfast, int], request_: bytes, status: int
) -> None:
    _, port = watched
    assert (await ask(port, request_))[0] == status
    assert (await ask(port, get("/livez")))[0] == 200


async def test_whoever_says_nothing_is_hung_up_on(
    watched: tuple[Holdfast, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_module, "PATIENCE", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", watched[1])
    async with asyncio.timeout(20):
        assert await reader.read() == b""
    writer.close()


async def test_a_port_that_is_taken_is_told_in_one_line(watched: tuple[Holdfast, int]) -> None:
    app, port = watched
    with pytest.raises(UsageError, match=f"--metrics-port {port} on 127.0.0.1: .*; choose another"):
        async with Port(app.metrics, app.runtime.engine).open("127.0.0.1", port):
            pass
