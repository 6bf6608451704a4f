"""The breaker of places: a customer that keeps failing at one waits, and no other one does; its table is bounded (E20, E76)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest

from holdfast.testing import ManualClock
from systems.screenshots.codes import Code
from systems.screenshots.hosts import (
    ALONE,
    COOLDOWN,
    EXPIRES_AFTER,
    LONGEST_COOLDOWN,
    ROWS_PER_SHARD,
    SHARDS,
    Failing,
    Hosts,
    is_held,
    place_of,
    shard_of,
)
from systems.screenshots.records import Books, open_books
from tests.systems.screenshots.api.test_sla import SLA, Court
from tests.systems.screenshots.api.world import ADMIN, World, eventually

pytestmark = pytest.mark.anyio

PLACE, DOWN = "example.com:443", Code.CONNECTION_FAILED


class Tried:
    """A breaker on a manual clock."""

    def __init__(self, books: Books) -> None:
        self.books, self.clock = books, ManualClock()
        self.hosts = Hosts(books, lambda: self.clock.now().timestamp())

    async def fail(self, owner: str, times: int = 1, place: str = PLACE) -> None:
        for _ in range(times):
            self.later(0.001)
            await self.hosts.record(place, owner, DOWN)

    async def waits(self, owner: str, place: str = PLACE) -> bool:
        return await self.hosts.wait(place, owner) > 0

    def later(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))


@pytest.fixture
async def tried(database_url: str) -> AsyncIterator[Tried]:
    async with open_books(database_url) as books:
        yield Tried(books)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://Example.com/a?b", "example.com:443"),
        ("http://example.com./", "example.com:80"),
        ("http://example.com:8080/", "example.com:8080"),
        ("http://[2606:4700::1]/", "2606:4700::1:80"),
    ],
)
def test_a_place_is_host_and_port(url: str, place: str) -> None:  # E20
    assert place_of(url) == place
    assert 0 <= shard_of(place) < SHARDS


def test_who_is_held_at_a_place() -> None:  # E20
    def held(*failures: int) -> bool:
        """Whether the first of these customers is."""
        rows = [Failing(f"user:{number}", times, 0.0) for number, times in enumerate(failures)]
        return is_held(rows[0], rows)

    assert [held(ALONE - 1), held(ALONE)] == [False, True]
    assert [held(2, 2), held(2, 2, 2), held(1, 2, 2, 2)] == [False, True, False]
    assert not held(1, *[1000] * 1000)  # it has not been called often enough by this one


async def test_ten_failures_hold_their_customer_and_no_other(tried: Tried) -> None:  # E20
    await tried.fail("ann", ALONE - 1)
    assert not await tried.waits("ann")
    await tried.fail("ann")
    assert await tried.hosts.wait(PLACE, "ann") == pytest.approx(COOLDOWN)
    assert not await tried.waits("bob")
    assert not await tried.waits("ann", "other.example:443")
    await tried.fail("bob", 3)
    assert not await tried.waits("bob")  # one customer's failures are not several customers'


async def test_a_place_that_is_down_for_several_customers_is_held_for_those_that_have_tried_it(
    tried: Tried,
) -> None:  # E20
    for owner in ("ann", "bob", "cid"):
        assert not await tried.waits(owner)
        await tried.fail(owner, 2)
    assert [await tried.waits(owner) for owner in ("ann", "bob", "cid", "new")] == [True, True, True, False]
    await tried.hosts.record(PLACE, "new", None)  # it has answered one of them
    assert [await tried.waits(owner) for owner in ("ann", "bob", "cid")] == [False] * 3


async def test_one_trial_a_cooldown_and_a_success_ends_it(tried: Tried) -> None:  # E20
    await tried.fail("ann", ALONE)
    tried.later(COOLDOWN)
    waits = await asyncio.gather(*(tried.hosts.wait(PLACE, "ann") for _ in range(8)))
    assert sorted(bool(wait) for wait in waits) == [False] + [True] * 7
    await tried.fail("ann")
    assert await tried.hosts.wait(PLACE, "ann") == pytest.approx(2 * COOLDOWN)
    await tried.fail("ann", 20)
    assert await tried.hosts.wait(PLACE, "ann") == pytest.approx(LONGEST_COOLDOWN)
    await tried.hosts.record(PLACE, "ann", Code.SELECTOR_NOT_FOUND)  # says nothing about the place
    assert await tried.waits("ann")
    await tried.hosts.record(PLACE, "ann", None)
    assert not await tried.waits("ann")


async def test_rows_expire_and_failures_before_that_do_not_count(tried: Tried) -> None:  # E20
    await tried.fail("ann", 20)
    tried.later(EXPIRES_AFTER)
    assert not await tried.waits("ann")
    await tried.fail("ann")
    assert not await tried.waits("ann")
    assert [one["failures"] for one in await tried.hosts.failing()] == [1]
    await tried.hosts.expire()
    assert len(await tried.books.run("SELECT 1 FROM screenshots_host")) == 1
    tried.later(EXPIRES_AFTER)
    await tried.hosts.expire()
    assert await tried.books.run("SELECT 1 FROM screenshots_host") == []


async def many_bad_hosts(tried: Tried, number: int) -> None:
    """One owner fails at *number* hosts; the table stays bounded and no other owner waits anywhere."""
    places = [f"n{one}.example:80" for one in range(number)]
    for place in places:
        await tried.fail("mallory", place=place)
    await tried.fail("mallory", ALONE)
    [(rows,)] = await tried.books.run("SELECT count(*) FROM screenshots_host")
    assert rows <= SHARDS * ROWS_PER_SHARD
    assert await tried.waits("mallory")
    for place in (*places[:: number // 50], PLACE):
        assert not await tried.waits("carol", place)


async def test_one_owner_with_many_bad_hosts_holds_no_other_owner(
    tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:  # E20
    monkeypatch.setattr("systems.screenshots.hosts._TRIM", TRIM_TO_3)
    monkeypatch.setattr("systems.screenshots.hosts.ROWS_PER_SHARD", 3)
    await many_bad_hosts(tried, 500)
    [(rows,)] = await tried.books.run("SELECT count(*) FROM screenshots_host")
    assert rows <= SHARDS * 3


TRIM_TO_3 = """DELETE FROM screenshots_host WHERE shard = $1 AND at < (
    SELECT at FROM screenshots_host WHERE shard = $1 ORDER BY at DESC LIMIT 1 OFFSET 2)"""


@pytest.mark.nightly
async def test_one_owner_with_ten_thousand_bad_hosts_holds_no_other_owner(tried: Tried) -> None:  # E20
    await many_bad_hosts(tried, 10_000)


async def test_a_good_picture_writes_nothing(tried: Tried, monkeypatch: pytest.MonkeyPatch) -> None:  # E20
    asked: list[str] = []
    run = tried.books.run

    async def counted(sql: str, *values: object) -> list[tuple[object, ...]]:
        asked.append(sql.split()[0])
        return await run(sql, *values)

    monkeypatch.setattr(tried.books, "run", counted)
    assert not await tried.waits("ann")
    await tried.hosts.record(PLACE, "ann", None)
    assert asked == ["SELECT", "SELECT"]


async def test_a_breaker_whose_database_is_away_holds_no_owner(
    tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:  # E20
    await tried.fail("ann", ALONE)

    async def gone(*_: object) -> list[tuple[object, ...]]:
        raise ConnectionError

    monkeypatch.setattr(tried.books, "run", gone)
    assert not await tried.waits("ann")
    await tried.hosts.record(PLACE, "ann", DOWN)


# -- in the whole system ----------------------------------------------------------------------------------------------
ONCE = "[tasks.SCREENSHOT]\nmax_attempts = 1\n"


async def test_a_screenshot_of_a_held_place_is_put_off_and_burns_nothing(
    make_world: Callable[..., World],
) -> None:  # E20 E9 E76
    async with make_world(policies=ONCE, sla=SLA).open() as world:
        for number in range(ALONE):
            await world.ended(await world.shot(url=f"https://down.example/fail/{number}"))
        held = await world.shot(url="https://down.example/page")

        async def is_put_off() -> bool:
            return "snoozed" in await world.kinds(held)

        await eventually(is_put_off)
        row = await world.app.jobs.get(held)
        assert (row.attempt, row.run_at > row.created_at + timedelta(seconds=COOLDOWN / 2)) == (0, True)
        assert world.browser.taken["https://down.example/page"] == 0  # type: ignore[attr-defined]
        # Others, and the same one elsewhere, are served.
        for who, url in (("bob", "https://down.example/page"), ("ann", "https://up.example/page")):
            assert (await world.ended(await world.shot(who, url)))["status"] == "COMPLETED"
        listed = (await world.ask("operator", "GET", f"{ADMIN}/hosts")).json()["hosts"]
        assert listed == [{"place": "down.example:443", "owner": "user:7", "failures": ALONE}]
        assert (await world.ask("ann", "GET", f"{ADMIN}/hosts")).status_code == 403
        assert await Court(world).judge(later=3600) == 0  # the customer's own pages are the cause


async def test_a_job_is_put_off_a_bounded_number_of_times_and_then_ends(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:  # E20 E5
    async def always(hosts: Hosts, place: str, owner: str) -> float:
        return 0.01

    monkeypatch.setattr(Hosts, "wait", always)
    async with make_world(policies=ONCE).open() as world:
        job_id = await world.shot(url="https://down.example/fail/x")
        assert (await world.ended(job_id))["status"] == "FAILED"
        assert (await world.kinds(job_id)).count("snoozed") == 10
        assert world.browser.taken["https://down.example/fail/x"] == 1  # type: ignore[attr-defined]
