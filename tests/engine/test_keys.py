"""Keys as people make, end and replace them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest

from holdfast import Holdfast, UsageError
from holdfast.engine.keys import digest_of
from holdfast.engine.tables import access_keys
from holdfast.errors import UnknownKey
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def app(clock: ManualClock) -> AsyncIterator[Holdfast]:
    async with Holdfast("memory://", store=MemoryStore(clock), clock=clock) as app:
        yield app


async def found(app: Holdfast, secret: str) -> Any:
    return await access_keys.find((await app.runtime.engine()).store, digest_of(secret))


async def test_a_key_is_known_by_a_secret_that_is_kept_nowhere(app: Holdfast) -> None:  # E66
    key, secret = await app.keys.create("owner", owner="ann")
    assert (key.role, key.owner, key.name) == ("owner", "ann", "ann")
    assert secret.startswith("hf_")
    assert len(secret) == 3 + 43  # 256 bits
    assert key.digest == sha256(secret.encode()).digest()
    assert secret not in repr(await app.keys.list())
    assert await found(app, secret) == key
    assert (await app.keys.create("admin"))[1] != secret


async def test_a_key_lasts_as_long_as_was_said(app: Holdfast, clock: ManualClock) -> None:  # E66
    key, secret = await app.keys.create("viewer", name="board", lasts="1h")
    assert key.name == "board"
    clock.advance("59m")
    assert await found(app, secret) == key
    clock.advance("1m")
    assert await found(app, secret) is None


async def test_only_valid_keys_are_listed_on_demand(app: Holdfast, clock: ManualClock) -> None:  # E66
    short, _ = await app.keys.create("viewer", lasts="1h")
    lasting, secret = await app.keys.create("admin")
    assert await app.keys.list(valid=True) == [short, lasting]
    clock.advance("1h")
    assert await app.keys.list(valid=True) == [lasting]
    assert await app.keys.list() == [short, lasting]
    assert await app.keys.find(secret) == lasting


async def test_the_use_of_a_key_is_recorded(app: Holdfast) -> None:  # E66
    used, _ = await app.keys.create("viewer")
    unused, _ = await app.keys.create("viewer")
    await app.keys.mark_used({used.id})
    moments = {key.id: key.last_used_at for key in await app.keys.list()}
    assert moments[used.id] is not None
    assert moments[unused.id] is None


async def test_a_revoked_key_opens_nothing(app: Holdfast) -> None:  # E66
    key, secret = await app.keys.create("operator")
    await app.keys.revoke(key.id)
    assert await found(app, secret) is None
    assert await app.keys.find(secret) is None
    assert await app.keys.list(valid=True) == []
    with pytest.raises(UnknownKey, match="no valid key"):
        await app.keys.revoke(key.id)


async def test_while_a_key_is_rotated_both_are_valid(app: Holdfast, clock: ManualClock) -> None:  # E66
    old, old_secret = await app.keys.create("owner", owner="ann", name="laptop", lasts="30d")
    clock.advance("10d")
    new, new_secret = await app.keys.rotate(old.id, overlap="1h")
    assert (new.role, new.owner, new.name) == (old.role, old.owner, old.name)
    assert new.id != old.id
    assert new.expires_at == clock.now() + timedelta(days=30)
    assert await found(app, old_secret) is not None
    assert await found(app, new_secret) == new
    clock.advance("1h")
    assert await found(app, old_secret) is None
    assert await found(app, new_secret) == new
    with pytest.raises(UnknownKey):
        await app.keys.rotate(old.id)


@pytest.mark.parametrize(
    ("role", "options", "words"),
    [
        ("king", {}, "one of viewer, owner"),
        ("owner", {}, "needs an owner"),
        ("owner", {"owner": ""}, "needs an owner"),
        ("admin", {"owner": "ann"}, "only a key of the role owner"),
        ("owner", {"owner": "a\nb"}, "printable"),
        ("admin", {"name": "x" * 201}, "printable"),
        ("admin", {"lasts": 0}, "lasts no time"),
        ("admin", {"lasts": "soon"}, "not a duration"),
    ],
)
async def test_a_key_that_makes_no_sense_is_refused(
    app: Holdfast, role: str, options: dict[str, Any], words: str
) -> None:  # E66
    with pytest.raises(UsageError, match=words):
        await app.keys.create(role, **options)
    assert await app.keys.list() == []


async def test_the_verbs_are_there_for_sync_code_too(app: Holdfast) -> None:  # E66
    for namespace, verbs in {
        "keys": ("create", "list", "revoke", "rotate"),
        "operations": ("begin", "list", "get", "cancel"),
        "jobs": ("count",),
        "dead_letters": ("count",),
    }.items():
        assert all(callable(getattr(getattr(app.sync, namespace), verb)) for verb in verbs)
