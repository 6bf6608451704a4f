"""Authentication: callers send a key as `Authorization: Bearer …`, the dashboard sends its session, and a few need neither.

Only programs on this machine may call without a key, and only where the server allows it because it listens on loopback. The
headers in which a proxy describes its clients (`X-Forwarded-For`) are not trusted, but their presence shows that the client is
another machine.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from fastapi import Request

from holdfast.engine.access import AccessKey, Action, Role
from holdfast.engine.keys import PREFIX, Keys, digest_of
from holdfast.errors import StoreError
from holdfast.jobs.machine import Clock
from holdfast.logging import Log
from holdfast.server.problems import Problem
from holdfast.server.session_cookie import HEADER, SessionCookies

log = Log("holdfast.server")

K = TypeVar("K")
V = TypeVar("V")

#: Where in a request's scope the caller is.
CALLER = "holdfast.caller"
#: How many seconds a key is cached. A revoked key may stay valid for so long.
CACHED_FOR = 5.0
#: How often the uses of keys are recorded, in seconds.
RECORD_USES_EVERY = 10.0
#: Unknown keys that one address may try in a second before it gets 429. Valid keys are never refused for it: behind a
#: proxy all clients have one address.
GUESSES_PER_SECOND = 20
#: How many keys that were not valid before are looked up at a time, so that guesses do not keep the store busy.
LOOK_UPS = 4
_MOST_CACHED = 10_000
_LONGEST_KEY = 200

_KEY_NAMES = {"key", "api_key", "apikey", "api-key", "token", "access_token", "authorization", "bearer"}
_PROXIED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="holdfast"'}


class WithoutKey(StrEnum):
    """Which callers need no key."""

    NEVER = "never"
    UNTIL_FIRST = "until_first"  #: programs on this machine, while the store has no key
    LOOPBACK = "loopback"  #: programs on this machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller behind a request. Its requests are counted under *scope*."""

    name: str  #: recorded with what it does
    role: Role
    owner: str | None = None
    scope: str

    @classmethod
    def of(cls, key: AccessKey) -> Caller:
        scope = f"owner:{key.owner}" if key.role is Role.OWNER else f"key:{key.id}"
        return cls(name=f"key:{key.name or key.id}", role=key.role, owner=key.owner, scope=scope)

    @property
    def is_owner(self) -> bool:
        return self.role is Role.OWNER

    def reaches(self, owner: str | None) -> bool:
        """Return whether it may see or change what belongs to *owner*."""
        return not self.is_owner or (owner is not None and owner == self.owner)

    def must_reach(self, owner: str | None) -> None:
        """Raise `Problem` unless it may see or change what belongs to *owner*."""
        if not self.reaches(owner):
            raise self._forbidden("this belongs to another owner")

    def own(self, owner: str | None) -> str | None:
        """Return the owner that a request is about: the caller's own for a key of an owner, else the *owner* it names.

        Raises `Problem` when a key of an owner names another one.
        """
        if not self.is_owner:
            return owner
        if owner is not None and owner != self.owner:
            raise self._forbidden("a key of an owner is for its own jobs; leave out `owner`")
        return self.owner

    def may(self, action: Action) -> None:
        """Raise `Problem` unless its role may do this."""
        if self.role not in action.allowed_to:
            allowed = ", ".join(sorted(action.allowed_to))
            raise self._forbidden(f"a key of the role {self.role} may not do this; it takes: {allowed}")

    def _forbidden(self, detail: str) -> Problem:
        self.log_refusal(detail)
        return Problem("FORBIDDEN", detail)

    def log_refusal(self, detail: str) -> None:
        log.warning("request.forbidden", caller=self.name, role=str(self.role), reason=detail)


class _CachedKey(NamedTuple):
    """A key as the store has it, and until when it is used without another look-up."""

    until: float
    key: AccessKey
    caller: Caller


#: The caller without a key.
LOCAL_CALLER = Caller(name="loopback", role=Role.ADMIN, scope="loopback")
#: The caller of a session that was opened by a token.
TOKEN_CALLER = Caller(name="dashboard", role=Role.ADMIN, scope="dashboard")


def refuse_key_in_url(query: list[tuple[str, str]], known: frozenset[str]) -> None:
    """Refuse a key in a URL, because URLs are logged. *known* are the parameters of the route, which may have such a name."""
    for name, value in query:
        if (name.lower() in _KEY_NAMES and name not in known) or value.startswith(PREFIX):
            raise Problem(
                "KEY_IN_URL", "send the key as `Authorization: Bearer …`, and make a new one: URLs are logged"
            )


class KeyCache:
    """The keys of callers, cached for a few seconds."""

    def __init__(self, keys: Keys, clock: Clock, without_key: WithoutKey, sessions: SessionCookies) -> None:
        self._keys, self._clock, self._without_key, self._sessions = keys, clock, without_key, sessions
        self._cached: dict[bytes, _CachedKey] = {}
        self._looking_up: dict[bytes, asyncio.Future[_CachedKey | None]] = {}
        self._unknown: dict[bytes, float] = {}  #: until when a digest counts as unknown
        self._look_ups = asyncio.Semaphore(LOOK_UPS)
        self._guesses: dict[str, tuple[int, int]] = {}
        self._used: set[str] = set()
        self._record_at = 0.0
        self._any_until = 0.0  #: until when `_any` is used without another look
        self._any = True

    async def caller(self, request: Request) -> Caller:
        """Return the caller that sent *request*. Raises `Problem` when its key is missing, malformed or not valid."""
        headers = request.headers.getlist("authorization")
        if not headers:
            if HEADER in request.headers:  # a page of the dashboard: it needs a session wherever it is opened
                return await self._session_caller(request)
            if await self._needs_no_key(request):
                return LOCAL_CALLER
            raise Problem("UNAUTHENTICATED", "send a key as `Authorization: Bearer …`", headers=_CHALLENGE)
        scheme, _, secret = headers[0].strip().partition(" ")
        secret = secret.strip()
        if len(headers) > 1 or scheme.lower() != "bearer" or not 1 <= len(secret) <= _LONGEST_KEY:
            raise self._refused()
        return await self._caller_of(digest_of(secret), request)

    async def sign_in(
        self, request: Request, *, key: str | None, token: str | None
    ) -> tuple[Caller, bytes | None]:
        """Return the caller that a *key* or a one-time *token* stands for, and the digest of the key. Raises `Problem`."""
        if key is not None:
            digest = digest_of(key)
            return await self._caller_of(digest, request), digest
        if self._sessions.redeem(token or ""):
            return TOKEN_CALLER, None
        raise self._guessed(request)

    async def _session_caller(self, request: Request) -> Caller:
        session = self._sessions.read(request)
        if session is None:
            raise Problem(
                "UNAUTHENTICATED", "there is no session, or it has ended; sign in", headers=_CHALLENGE
            )
        return TOKEN_CALLER if session.digest is None else await self._caller_of(session.digest, request)

    async def _caller_of(self, digest: bytes, request: Request) -> Caller:
        cached = self._cached.get(digest)
        if cached is None or self._clock.monotonic() >= cached.until:
            cached = await self._find(digest, request)
        if not cached.key.is_valid(self._clock.now()):
            raise self._refused()
        self._used.add(cached.key.id)
        if self._clock.monotonic() >= self._record_at:
            await self.record_uses()
        return cached.caller

    def clear(self) -> None:
        """Forget all keys, because one may have changed just now."""
        self._cached.clear()
        self._unknown.clear()
        self._any_until = 0.0

    def _refused(self) -> Problem:
        challenge = {"WWW-Authenticate": 'Bearer realm="holdfast", error="invalid_token"'}
        return Problem("UNAUTHENTICATED", "this key is unknown, expired or revoked", headers=challenge)

    async def _find(self, digest: bytes, request: Request) -> _CachedKey:
        """Look up a key that is not cached. An unknown one that is sent again does not count as another guess."""
        if self._clock.monotonic() < self._unknown.get(digest, 0.0):
            raise self._refused()
        looking_up = self._looking_up.get(digest)
        if looking_up is None:  # requests that come meanwhile with the same key share the look-up
            looking_up = self._looking_up[digest] = asyncio.ensure_future(self._look_up(digest))
        cached = await asyncio.shield(looking_up)
        if cached is None:
            raise self._guessed(request)
        return cached

    async def _look_up(self, digest: bytes) -> _CachedKey | None:
        now = self._clock.monotonic()
        try:
            if digest in self._cached:  # it was valid a moment ago, so it does not wait behind guesses
                key = await self._keys.find(None, digest=digest)
            else:
                async with self._look_ups:
                    key = await self._keys.find(None, digest=digest)
        finally:
            del self._looking_up[digest]
        if key is None:
            self._cached.pop(digest, None)
            _bounded(self._unknown)[digest] = now + CACHED_FOR
            return None
        found = _bounded(self._cached)[digest] = _CachedKey(now + CACHED_FOR, key, Caller.of(key))
        return found

    def _guessed(self, request: Request) -> Problem:
        """Count an unknown key against the address that sent it."""
        host, second = _host(request), int(self._clock.monotonic())
        last, count = self._guesses.pop(host, (second, 0))
        count = count + 1 if last == second else 1
        _bounded(self._guesses)[host] = (second, count)
        if count <= GUESSES_PER_SECOND:
            return self._refused()
        return Problem(
            "RATE_LIMITED", "too many unknown keys; check yours, and wait", headers={"Retry-After": "1"}
        )

    async def record_uses(self, *, now: bool = False) -> None:
        """Record which keys were used, if that is due or if it must be *now*. One request in many waits for it."""
        if not self._used or not (now or self._clock.monotonic() >= self._record_at):
            return
        self._record_at = self._clock.monotonic() + RECORD_USES_EVERY
        used, self._used = self._used, set()
        try:
            await self._keys.mark_used(used)
        except StoreError as error:
            self._used |= used
            log.warning("api_key.use_not_recorded", reason=type(error).__name__)

    async def _needs_no_key(self, request: Request) -> bool:
        if self._without_key is WithoutKey.NEVER or not is_local(request):
            return False
        return self._without_key is WithoutKey.LOOPBACK or not await self._has_any()

    async def _has_any(self) -> bool:
        now = self._clock.monotonic()
        if now >= self._any_until:
            self._any = bool(await self._keys.list())
            self._any_until = now + CACHED_FOR / 5
        return self._any


def _bounded(cache: dict[K, V]) -> dict[K, V]:
    if len(cache) >= _MOST_CACHED:
        cache.clear()
    return cache


def _host(request: Request) -> str:
    return request.client.host if request.client else ""


def is_local(request: Request) -> bool:
    """See `holdfast.server.is_local`."""
    headers = request.headers
    if request.client is None or not is_loopback(request.client.host):
        return False
    if any(name in headers for name in _PROXIED):
        return False
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return False
    # Another site's page can reach this machine by a name that resolves to it; its Host or Origin shows that.
    hosts, origins = headers.getlist("host"), headers.getlist("origin")
    names = [_hostname(f"//{host}") for host in hosts] + [_hostname(origin) for origin in origins]
    return len(hosts) == 1 and len(origins) <= 1 and all(map(is_loopback, names))


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:  # not every server refuses a malformed header
        return None


def is_loopback(host: str | None) -> bool:
    """Return whether *host* is a name or an address of this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False
