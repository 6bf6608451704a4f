"""`app.keys`: create, list, find, revoke and rotate API keys. A secret is 256 random bits; only its SHA-256 is stored."""

from __future__ import annotations

import builtins
from base64 import urlsafe_b64encode
from collections.abc import Collection
from datetime import timedelta
from hashlib import sha256

from holdfast.engine.access import AccessKey, Role
from holdfast.engine.engine import Engine
from holdfast.engine.namespace import Namespace
from holdfast.engine.tables import access_keys
from holdfast.errors import UnknownKey, UsageError
from holdfast.values.duration import Duration, duration, optional

#: What every secret begins with, so that people and secret scanners recognize it.
PREFIX = "hf_"
_LONGEST_NAME = 200


class Keys(Namespace):
    """Keys of the HTTP API, each with a role."""

    async def create(
        self,
        role: str,
        *,
        owner: str | None = None,
        name: str = "",
        lasts: Duration | None = None,
        token: str | None = None,
    ) -> tuple[AccessKey, str]:
        """Create a key, and return it with its secret. The secret is not stored: show it once.

        Args:
            role: "viewer", "owner", "operator" or "admin".
            owner: Whose jobs a key of the role "owner" reaches.
            name: For people.
            lasts: How long it is valid; without it, it does not expire.
            token: An id that names this call. A call that is repeated under it makes no second key, and the secret that it
                returns is the valid one.
        """
        return await _create(
            await self._engine(), role, owner=owner, name=name, lasts=optional(lasts), token=token
        )

    async def list(self, *, valid: bool = False) -> builtins.list[AccessKey]:
        """Return all keys, oldest first, with those that have expired or were revoked; or only those that are *valid*."""
        store = (await self._engine()).store
        keys = await access_keys.every(store)
        if not valid:
            return keys
        now = await store.now()
        return [key for key in keys if key.is_valid(now)]

    async def find(self, secret: str | None, *, digest: bytes | None = None) -> AccessKey | None:
        """Return the valid key with this secret, or None. Use it to check callers of an API of your own.

        Without a *secret*, the key whose secret has this *digest* (SHA-256).
        """
        wanted = digest_of(secret) if isinstance(secret, str) else digest
        return None if wanted is None else await access_keys.find((await self._engine()).store, wanted)

    async def mark_used(self, key_ids: Collection[str]) -> None:
        """Record that these keys were used just now."""
        await access_keys.mark_used((await self._engine()).store, key_ids)

    async def revoke(self, key_id: str, *, after: Duration = 0) -> None:
        """End a key, now or *after* a while. Raises `UnknownKey` when no valid key has this id."""
        store = (await self._engine()).store
        if not isinstance(key_id, str) or not await access_keys.revoke(store, key_id, after=duration(after)):
            raise UnknownKey(key_id)

    async def rotate(
        self, key_id: str, *, overlap: Duration = "24h", token: str | None = None
    ) -> tuple[AccessKey, str]:
        """Replace a key, and return the new one with its secret. The old one stays valid for the *overlap*.

        The new key lasts as long as the old one was meant to. It is stored before the old one ends, so a crash in between
        leaves both valid. *token* names the call, as in `create`.

        Raises `UnknownKey` when no valid key has this id.
        """
        engine = await self._engine()
        now = await engine.store.now()
        keys = {key.id: key for key in await access_keys.every(engine.store)}
        old, is_repeated = keys.get(key_id), token is not None and token in keys
        if old is None or not (old.is_valid(now) or is_repeated):
            raise UnknownKey(key_id)
        lasts = None if old.expires_at is None else old.expires_at - old.created_at
        new = await _create(engine, old.role, owner=old.owner, name=old.name, lasts=lasts, token=token)
        await access_keys.revoke(engine.store, key_id, after=duration(overlap))
        return new


def digest_of(secret: str) -> bytes:
    """Return what a key is found by. One round of SHA-256 is enough for 256 random bits."""
    return sha256(secret.encode(errors="surrogatepass")).digest()


async def _create(
    engine: Engine,
    role: str,
    *,
    owner: str | None,
    name: str,
    lasts: timedelta | None,
    token: str | None = None,
) -> tuple[AccessKey, str]:
    # Repeated under its token, it is the same key with another secret: the first secret was lost with the answer.
    if role not in tuple(Role):
        raise UsageError(f"role is {role!r}; it is one of {', '.join(Role)}")
    if (role == Role.OWNER) is not bool(owner):
        raise UsageError(
            "a key of the role owner needs an owner: whose jobs it reaches"
            if role == Role.OWNER
            else f"only a key of the role owner has an owner; one of the role {role} reaches all jobs"
        )
    for word, text in (("owner", owner or ""), ("name", name)):
        if not isinstance(text, str) or len(text) > _LONGEST_NAME or not text.isprintable():
            raise UsageError(f"{word} is {text!r:.60}; it is up to {_LONGEST_NAME} printable characters")
    if lasts is not None and not lasts:
        raise UsageError("a key that lasts no time is of no use; leave it out for one that does not expire")
    secret = PREFIX + urlsafe_b64encode(engine.ids.secret()).decode().rstrip("=")
    key = AccessKey(
        id=token or engine.ids.job_id(),
        name=name or owner or str(role),
        role=Role(role),
        owner=owner or None,
        digest=digest_of(secret),
        created_at=engine.clock.now(),
    )
    return await access_keys.add(engine.store, key, lasts=lasts), secret
