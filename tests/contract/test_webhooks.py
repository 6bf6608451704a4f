"""Webhooks at rest, and the bookmarks of those who read events."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from holdfast.engine.tables import bookmarks
from holdfast.webhooks import table as webhook_table
from holdfast.webhooks.model import Seed, Webhook
from tests.contract.world import World

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
THREE_DAYS = timedelta(days=3)


def a_webhook(webhook_id: str = "one") -> Webhook:
    return Webhook(
        id=webhook_id,
        url="https://example.com/hook?a=ü",
        events=("failed", "complete"),
        owner="ann",
        seeds=(Seed("00ff", "1234"), Seed("ff00", "4321", LONG_AGO), Seed("whsec_of_an_older_version", "")),
        description="mine",
        created_at=LONG_AGO,
    )


async def test_a_webhook_is_kept_as_it_was_put(world: World) -> None:  # E61
    put = await webhook_table.put(world.store, a_webhook())
    assert put.created_at > LONG_AGO
    assert replace(put, created_at=LONG_AGO) == a_webhook()
    assert await webhook_table.every(world.store) == [put]


async def test_a_webhook_that_is_put_again_is_changed_but_not_made_anew(world: World) -> None:  # E61
    put = await webhook_table.put(world.store, a_webhook())
    await webhook_table.put(world.store, a_webhook("two"))
    await world.advance("1m")
    changed = replace(
        put, inbound=True, url="", events=(), owner=None, disabled_at=put.created_at, disabled_reason="410"
    )
    assert await webhook_table.put(world.store, replace(changed, created_at=LONG_AGO)) == changed
    assert [webhook.id for webhook in await webhook_table.every(world.store)] == ["one", "two"]
    assert not changed.is_enabled


async def test_a_removed_webhook_is_gone(world: World) -> None:  # E61
    await webhook_table.put(world.store, a_webhook())
    assert await webhook_table.remove(world.store, "one")
    assert not await webhook_table.remove(world.store, "one")
    assert await webhook_table.every(world.store) == []
    assert await webhook_table.record_answer(world.store, "one", well=True, disable_after=THREE_DAYS) is None


async def test_a_webhook_is_disabled_when_it_has_failed_for_days(world: World) -> None:  # E61
    await webhook_table.put(world.store, a_webhook())

    async def fail() -> Webhook:
        webhook = await webhook_table.record_answer(world.store, "one", well=False, disable_after=THREE_DAYS)
        assert webhook is not None
        return webhook

    first = await fail()
    assert first.failing_since is not None
    assert first.is_enabled
    await world.advance("2d")
    assert (await fail()).failing_since == first.failing_since
    await world.advance("1d")
    last = await fail()
    assert last.disabled_at is not None
    assert last.disabled_reason == "no delivery has succeeded for 3d"
    await world.advance("1m")
    assert await fail() == last
    assert await webhook_table.every(world.store) == [last]


async def test_a_success_begins_the_count_of_failing_days_anew(world: World) -> None:  # E61
    await webhook_table.put(world.store, a_webhook())
    await webhook_table.record_answer(world.store, "one", well=False, disable_after=THREE_DAYS)
    await world.advance("2d")
    well = await webhook_table.record_answer(world.store, "one", well=True, disable_after=THREE_DAYS)
    assert well is not None
    assert well.failing_since is None
    await world.advance("2d")
    failed = await webhook_table.record_answer(world.store, "one", well=False, disable_after=THREE_DAYS)
    assert failed is not None
    assert failed.is_enabled
    assert failed.failing_since is not None


async def test_a_bookmark_is_moved_by_whoever_knows_where_it_is(world: World) -> None:  # E61
    assert await bookmarks.get(world.store, "feed") is None
    assert not await bookmarks.move(world.store, "feed", before=3, to=4)
    assert await bookmarks.move(world.store, "feed", before=None, to=2**60)
    assert not await bookmarks.move(world.store, "feed", before=None, to=9)
    assert not await bookmarks.move(world.store, "feed", before=1, to=9)
    assert await bookmarks.get(world.store, "feed") == 2**60
    assert await bookmarks.move(world.store, "feed", before=2**60, to=2**60 + 1)
    assert (await bookmarks.get(world.store, "feed"), await bookmarks.get(world.store, "other")) == (
        2**60 + 1,
        None,
    )
