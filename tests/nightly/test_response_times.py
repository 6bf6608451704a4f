"""How long an answer takes: beside a crowd of slow clients, from the guard of the screenshots, and of a report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from holdfast.server.run import listen, served
from systems.reports.stats import take_stats
from systems.screenshots.guard.proxy import REFUSAL, REFUSAL_SECONDS
from tests.closed_addresses import CLOSED
from tests.nightly.conftest import Within
from tests.server.test_serving import BODY, Served, head, raw, status
from tests.server.world import new_app
from tests.systems.provider.providers import RunningProvider
from tests.systems.reports.world import World
from tests.systems.screenshots.test_guard import admitted, ask, bracketed, connect, get

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]


async def test_a_request_beside_200_slow_clients_takes_less_than_a_second_of_cpu(
    record_property: Callable[[str, object], None],
) -> None:  # E66
    """Of the client and the server together, which share this process."""
    app, listening = new_app(), listen("127.0.0.1", 0)
    async with served(app, listening, "127.0.0.1", rate=None) as server:
        house = Served(app, server.site)
        house.port = listening.getsockname()[1]
        crowd = [await asyncio.open_connection("127.0.0.1", house.port) for _ in range(200)]
        drip, spent = head("Content-Length: 100000"), list[float]()
        try:
            for number, (_, writer) in enumerate(crowd):
                writer.write(drip[: len(drip) - number % 3] if number % 2 else drip + b"x")
            for _ in range(10):
                for _, writer in crowd:
                    writer.write(b"x")
                began = time.process_time()
                assert status(await raw(house, head(f"Content-Length: {len(BODY)}"), BODY)) == 201
                spent.append(time.process_time() - began)
        finally:
            for _, writer in crowd:
                writer.close()
    record_property("CPU seconds of the slowest request beside 200 slow clients", round(max(spent), 3))
    assert max(spent) < 1


@pytest.mark.parametrize("method", ["CONNECT", "GET"])
async def test_every_closed_address_is_refused_after_the_same_time_and_at_most_3_seconds_later(
    method: str, record_property: Callable[[str, object], None]
) -> None:  # S1
    def request(place: str) -> str:
        return connect(place) if method == "CONNECT" else get(f"http://{place}/")

    async def timed(address: str) -> float:
        async with admitted() as (given, _):
            began = time.monotonic()
            assert await ask(given.port, request(f"{bracketed(address)}:443")) == REFUSAL
            return time.monotonic() - began

    took = await asyncio.gather(*map(timed, CLOSED))
    late = round(max(took) - REFUSAL_SECONDS, 3)
    record_property(f"seconds beyond the common time until {method} is refused", late)
    assert all(REFUSAL_SECONDS <= seconds < REFUSAL_SECONDS + 3 for seconds in took)


async def test_a_report_whose_model_failed_once_succeeds_within_20_seconds(
    make_world: Callable[..., World], provider: RunningProvider, within: Within
) -> None:  # P6
    world = make_world()
    async with world.working() as records:
        provider.fault(status=500, times=1)
        with within(20, "seconds until a report whose model failed once has succeeded"):
            await world.made(world.put("a.txt"))
        stats = await take_stats(records)
    assert stats.succeeded == 1
    assert stats.p95_seconds_to_success is not None
    assert stats.p95_seconds_to_success < 20
