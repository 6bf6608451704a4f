"""A crowd of worker processes behind one breaker: none resets it, few try, and a trial that is killed is the next one's."""

from __future__ import annotations

import pytest

from holdfast.resilience.breaker import Breaker, BreakerState
from tests.e2e.faults.world import Site, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
#: Many on two cores: slow is not dead.
CALM = {"lease": "20s", "heartbeat": "5s", "poll": "500ms"}


async def breaker(site: Site) -> Breaker:
    [state_of_dependency] = await site.app.breakers.list()
    return state_of_dependency.breaker


async def becomes(site: Site, state: BreakerState) -> Breaker:
    async def there() -> bool:
        return (await breaker(site)).state is state

    await eventually(there, f"the breaker to be {state}")
    return await breaker(site)


async def test_workers_that_start_while_it_is_open_change_nothing(site: Site) -> None:  # E20
    opened = await site.app.breakers.open("service", duration="1h", reason="by hand")
    ids = await site.enqueue_many("call_service", [{}] * 50)
    await site.crew(6, **CALM)
    jobs = await site.enqueue_many(
        "nothing", [{}] * 50
    )  # they work: what they leave alone they leave on purpose
    for one in jobs:
        await site.reaches(one, "complete")
    assert await breaker(site) == opened
    assert not [line for line in site.journal("start") if line["name"] in ids]


async def test_of_a_crowd_three_try_when_it_is_half_open(site: Site) -> None:  # E20 E22
    ids = await site.enqueue_many("call_service", [{}] * 200)
    await site.app.breakers.open("service", duration="3s", reason="by hand")
    site.flag("up")
    await site.crew(4, **CALM)
    await becomes(site, BreakerState.CLOSED)
    kinds = [event.kind for event in await site.app.events.list(limit=100_000)]
    assert kinds.count("breaker_closed") == 1
    assert kinds[: kinds.index("breaker_closed")].count("processing") == 3
    await site.drained()
    assert len(site.journal("end")) == 200
    assert {(await site.app.jobs.get(one)).attempt for one in ids[::10]} == {1}


async def test_the_trial_of_a_killed_worker_is_the_next_one_s(site: Site) -> None:  # E20 E22
    await site.enqueue_many("call_service", [{}] * 20)
    await site.app.breakers.open("service", duration="1s", reason="by hand")
    site.flag("up")
    site.flag("hangs")
    first = await site.worker(**CALM).ready()
    await eventually(lambda: len(site.journal("start")) >= 3, "three trials")
    first.kill()
    (site.folder / "hangs").unlink()
    await site.worker(lease="1s", heartbeat="300ms").ready()
    await becomes(site, BreakerState.CLOSED)
    await site.drained()
    assert len(site.journal("end")) == 20
