"""Keys of the front doors: kept as digests, valid until they expire or are revoked."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from holdfast.engine.access import AccessKey, Role
from holdfast.engine.tables import access_keys
from tests.contract.world import MINUTE, World

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


def a_key(name: str, role: Role = Role.OWNER) -> AccessKey:
    digest = sha256(name.encode()).digest()
    return AccessKey(id=f"key-{name}", name=name, role=role, owner="ann", digest=digest, created_at=LONG_AGO)


async def test_a_key_is_found_by_its_digest_as_it_was_made(world: World) -> None:  # E66
    made = await access_keys.add(world.store, a_key("one"), lasts=None)
    assert made.created_at > LONG_AGO
    assert made.expires_at is None
    assert replace(made, created_at=LONG_AGO) == a_key("one")
    assert await access_keys.find(world.store, made.digest) == made
    assert await access_keys.find(world.store, sha256(b"another").digest()) is None


async def test_keys_are_listed_oldest_first_those_that_ended_too(world: World) -> None:  # E66
    for name in ("b", "a"):
        await access_keys.add(world.store, a_key(name), lasts=None)
        await world.advance("1s")
    await access_keys.revoke(world.store, "key-b")
    first, second = await access_keys.every(world.store)
    assert (first.name, second.name) == ("b", "a")
    assert first.revoked_at is not None
    assert second.revoked_at is None


async def test_a_key_that_is_added_twice_is_kept_once(world: World) -> None:  # E66
    first = await access_keys.add(world.store, a_key("one"), lasts=None)
    await world.advance("1s")
    assert await access_keys.add(world.store, a_key("one"), lasts=MINUTE) == first
    assert await access_keys.every(world.store) == [first]


async def test_a_key_that_is_made_again_has_the_later_secret_only(world: World) -> None:  # E37 E66
    first = await access_keys.add(world.store, a_key("one"), lasts=None)
    again = replace(a_key("one"), digest=b"of another secret")
    assert await access_keys.add(world.store, again, lasts=MINUTE) == replace(first, digest=again.digest)
    assert await access_keys.find(world.store, first.digest) is None
    assert [key.id for key in await access_keys.every(world.store)] == [first.id]


async def test_a_key_expires_by_the_stores_clock(world: World) -> None:  # E66
    made = await access_keys.add(world.store, a_key("short"), lasts=MINUTE)
    assert made.expires_at == made.created_at + MINUTE
    await world.advance("50s")
    assert await access_keys.find(world.store, made.digest) == made
    await world.advance("10s")
    assert await access_keys.find(world.store, made.digest) is None
    assert not await access_keys.revoke(world.store, made.id)


async def test_a_revoked_key_is_valid_no_more(world: World) -> None:  # E66
    made = await access_keys.add(world.store, a_key("one"), lasts=None)
    assert await access_keys.revoke(world.store, made.id)
    assert await access_keys.find(world.store, made.digest) is None
    assert not await access_keys.revoke(world.store, made.id)
    assert not await access_keys.revoke(world.store, "key-nobody")


async def test_a_key_that_is_revoked_after_a_while_is_valid_until_then_and_never_longer(
    world: World,
) -> None:  # E66
    made = await access_keys.add(world.store, a_key("old"), lasts=None)
    assert await access_keys.revoke(world.store, made.id, after=timedelta(hours=1))
    assert await access_keys.revoke(world.store, made.id, after=timedelta(hours=9))
    assert await access_keys.find(world.store, made.digest) is not None
    await world.advance("1h")
    assert await access_keys.find(world.store, made.digest) is None


async def test_a_key_that_is_on_its_way_out_can_be_revoked_at_once(world: World) -> None:  # E66
    made = await access_keys.add(world.store, a_key("old"), lasts=None)
    await access_keys.revoke(world.store, made.id, after=timedelta(hours=1))
    assert await access_keys.revoke(world.store, made.id)
    assert await access_keys.find(world.store, made.digest) is None


async def test_the_use_of_keys_is_noted(world: World) -> None:  # E66
    used = await access_keys.add(world.store, a_key("used"), lasts=None)
    idle = await access_keys.add(world.store, a_key("idle"), lasts=None)
    await world.advance("1m")
    await access_keys.mark_used(world.store, [used.id, "key-nobody"])
    by_id = {key.id: key for key in await access_keys.every(world.store)}
    noted = by_id[used.id].last_used_at
    assert noted is not None
    assert noted >= used.created_at + MINUTE
    assert by_id[idle.id].last_used_at is None
    await access_keys.mark_used(world.store, [])
