"""Keys: made, ended, replaced. A secret is 256 random bits; only its SHA-256 is stored."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from datetime import timedelta
from hashlib import sha256

from holdfast.domain.access import AccessKey, Role
from holdfast.engine.engine import Engine
from holdfast.errors import UnknownKey, UsageError

#: By it people and scanners of repositories see what they have before them.
PREFIX = "hf_"
_LONGEST_NAME = 200


def digest_of(secret: str) -> bytes:
    """What a key is known by. One round is enough: nobody guesses 256 random bits."""
    return sha256(secret.encode(errors="surrogatepass")).digest()


async def create_key(
    engine: Engine,
    role: str,
    *,
    owner: str | None,
    name: str,
    lasts: timedelta | None,
    token: str | None = None,
) -> tuple[AccessKey, str]:
    """Made again under its *token*, it is the same key with another secret: the first one's was lost with the answer."""
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
    return await engine.store.add_key(key, lasts=lasts), secret


async def find_key(engine: Engine, secret: str | None) -> AccessKey | None:
    if not isinstance(secret, str):  # the caller sent none
        return None
    key = await engine.store.key(digest_of(secret))
    return key if key is not None and key.is_valid(await engine.store.now()) else None


async def revoke_key(engine: Engine, key_id: str, *, after: timedelta) -> None:
    if not isinstance(key_id, str) or not await engine.store.revoke_key(key_id, after=after):
        raise UnknownKey(key_id)


async def rotate_key(
    engine: Engine, key_id: str, *, overlap: timedelta, token: str | None = None
) -> tuple[AccessKey, str]:
    """The new one lasts as long as the old one was meant to. It is there before the old one ends: killed in between, both are."""
    now = await engine.store.now()
    keys = {key.id: key for key in await engine.store.keys()}
    old, is_repeated = keys.get(key_id), token is not None and token in keys
    if old is None or not (old.is_valid(now) or is_repeated):
        raise UnknownKey(key_id)
    lasts = None if old.expires_at is None else old.expires_at - old.created_at
    new = await create_key(engine, old.role, owner=old.owner, name=old.name, lasts=lasts, token=token)
    await engine.store.revoke_key(key_id, after=overlap)
    return new
