"""Keys as people make, end and replace them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest

from holdfast import Holdfast, UsageError
from holdfast.engine.access_keys import digest_of
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
    return await (await app.engine()).store.key(digest_of(secret))


async def test_a_key_is_known_by_a_secret_that_is_kept_nowhere(app: Holdfast) -> None:  # E66
    key, secret = await app.create_key("owner", owner="ann")
    assert (key.role, key.owner, key.name) == ("owner", "ann", "ann")
    assert secret.startswith("hf_")
    assert len(secret) == 3 + 43  # 256 bits
    assert key.digest == sha256(secret.encode()).digest()
    assert secret not in repr(await app.keys())
    assert await found(app, secret) == key
    assert (await app.create_key("admin"))[1] != secret


async def test_a_key_lasts_as_long_as_was_said(app: Holdfast, clock: ManualClock) -> None:  # E66
    key, secret = await app.create_key("viewer", name="board", lasts="1h")
    assert key.name == "board"
    clock.advance("59m")
    assert await found(app, secret) == key
    clock.advance("1m")
    assert await found(app, secret) is None


async def test_a_revoked_key_opens_nothing(app: Holdfast) -> None:  # E66
    key, secret = await app.create_key("operator")
    await app.revoke_key(key.id)
    assert await found(app, secret) is None
    with pytest.raises(UnknownKey, match="no valid key"):
        await app.revoke_key(key.id)


async def test_while_a_key_is_rotated_both_are_valid(app: Holdfast, clock: ManualClock) -> None:  # E66
    old, old_secret = await app.create_key("owner", owner="ann", name="laptop", lasts="30d")
    clock.advance("10d")
    new, new_secret = await app.rotate_key(old.id, overlap="1h")
    assert (new.role, new.owner, new.name) == (old.role, old.owner, old.name)
    assert new.id != old.id
    assert new.expires_at == clock.now() + timedelta(days=30)
    assert await found(app, old_secret) is not None
    assert await found(app, new_secret) == new
    clock.advance("1h")
    assert await found(app, old_secret) is None
    assert await found(app, new_secret) == new
    with pytest.raises(UnknownKey):
        await app.rotate_key(old.id)


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
        await app.create_key(role, **options)
    assert await app.keys() == []


async def test_the_verbs_are_there_for_sync_code_too(app: Holdfast) -> None:  # E66
    for verb in ("create_key", "keys", "revoke_key", "rotate_key", "operate", "operations", "operation",
                 "cancel_operation", "count", "count_dead_letters"):  # fmt: skip
        assert callable(getattr(app.sync, verb))
