"""Who asks: keys as `Authorization: Bearer …`, what they are remembered by, and who needs none.

Nobody is let in without a key but programs on this machine, and they only where the server was told so: it listens on
loopback. What a proxy says about its clients (X-Forwarded-For) is never believed; that it says anything is the sign that the
client is somebody else.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from hmac import compare_digest
from ipaddress import ip_address
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from fastapi import Request

from holdfast.app import Holdfast
from holdfast.domain.access import AccessKey, Action, Role
from holdfast.engine.access_keys import PREFIX, digest_of
from holdfast.engine.ports import Clock, Store
from holdfast.errors import StoreError
from holdfast.logs import Log
from holdfast.server.problems import Problem

log = Log("holdfast.server")

K = TypeVar("K")
V = TypeVar("V")

#: Where in a request's scope the caller is.
CALLER = "holdfast.caller"
#: How long a key is believed without asking the store again: so long may a revoked one live on.
BELIEVED_FOR = 5.0
#: How often it is written down which keys were used.
TOUCH_EVERY = 10.0
#: Unknown keys that one address may try in a second before it is answered 429. Valid keys are never refused for it: behind a
#: proxy all clients have one address.
GUESSES_PER_SECOND = 20
#: How many keys that were not valid before are looked up at a time: guesses wait for each other, not the store for them.
LOOK_UPS = 4
_MOST_REMEMBERED = 10_000
_LONGEST_KEY = 200

_KEY_NAMES = {"key", "api_key", "apikey", "api-key", "token", "access_token", "authorization", "bearer"}
_PROXIED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="holdfast"'}


class WithoutKey(StrEnum):
    """Who may come in without a key."""

    NEVER = "never"
    UNTIL_FIRST = "until_first"  #: programs on this machine, while the store has no key
    LOOPBACK = "loopback"  #: programs on this machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller behind a request. *scope* is what its requests are counted under."""

    name: str  #: on record as the one who did it
    role: Role
    owner: str | None = None
    scope: str

    @classmethod
    def of(cls, key: AccessKey) -> Caller:
        counted = f"owner:{key.owner}" if key.role is Role.OWNER else f"key:{key.id}"
        return cls(name=f"key:{key.name or key.id}", role=key.role, owner=key.owner, scope=counted)

    @property
    def is_owner(self) -> bool:
        return self.role is Role.OWNER

    def reaches(self, owner: str | None) -> bool:
        """Whether it may see or steer what belongs to *owner*."""
        return not self.is_owner or (owner is not None and owner == self.owner)

    def must_reach(self, owner: str | None) -> None:
        if not self.reaches(owner):
            raise self._forbidden("this belongs to another owner")

    def own(self, owner: str | None) -> str | None:
        """The owner that a request is about: the caller itself where it is one, else whom it names."""
        if not self.is_owner:
            return owner
        if owner is not None and owner != self.owner:
            raise self._forbidden("a key of an owner is for its own jobs; leave out `owner`")
        return self.owner

    def may(self, action: Action) -> None:
        if self.role not in action.allowed_to:
            allowed = ", ".join(sorted(action.allowed_to))
            raise self._forbidden(f"a key of the role {self.role} may not do this; it takes: {allowed}")

    def _forbidden(self, detail: str) -> Problem:
        self.log_refusal(detail)
        return Problem("FORBIDDEN", detail)

    def log_refusal(self, detail: str) -> None:
        """On record: who tries doors that are closed to them is of interest."""
        log.warning("request.forbidden", caller=self.name, role=str(self.role), reason=detail)


class _Known(NamedTuple):
    """A key as the store has it, and until when that is believed."""

    until: float
    key: AccessKey
    caller: Caller


#: Who comes in without a key.
NEIGHBOUR = Caller(name="loopback", role=Role.ADMIN, scope="loopback")


def refuse_key_in_url(query: list[tuple[str, str]], known: frozenset[str]) -> None:
    """URLs are kept in logs and histories. What was sent so is spent. *known* are the names that mean something else."""
    for name, value in query:
        if (name.lower() in _KEY_NAMES and name not in known) or value.startswith(PREFIX):
            raise Problem(
                "KEY_IN_URL", "send the key as `Authorization: Bearer …`, and make a new one: URLs are logged"
            )


class KeyCache:
    """Keys as the store knows them, remembered for a few seconds."""

    def __init__(self, app: Holdfast, clock: Clock, without_key: WithoutKey) -> None:
        self._app, self._clock, self._without_key = app, clock, without_key
        self._known: dict[bytes, _Known] = {}
        self._asking: dict[bytes, asyncio.Future[_Known | None]] = {}
        self._unknown: dict[bytes, float] = {}  #: until when a digest is believed to be of no key
        self._look_ups = asyncio.Semaphore(LOOK_UPS)
        self._guesses: dict[str, tuple[int, int]] = {}
        self._used: set[str] = set()
        self._touch_due = 0.0
        self._any_until = 0.0  #: until when it is known that …
        self._any = True  #: … there are keys

    async def caller(self, request: Request) -> Caller:
        """Who sent *request*; a problem when that is nobody we know."""
        given = request.headers.getlist("authorization")
        if not given:
            if await self._is_neighbour(request):
                return NEIGHBOUR
            raise Problem("UNAUTHENTICATED", "send a key as `Authorization: Bearer …`", headers=_CHALLENGE)
        scheme, _, secret = given[0].strip().partition(" ")
        secret = secret.strip()
        if len(given) > 1 or scheme.lower() != "bearer" or not 1 <= len(secret) <= _LONGEST_KEY:
            raise self._refused()
        digest = digest_of(secret)
        known = self._known.get(digest)
        if known is None or self._clock.monotonic() >= known.until:
            known = await self._find(digest, request)
        if not known.key.is_valid(self._clock.now()):
            raise self._refused()
        self._used.add(known.key.id)
        if self._clock.monotonic() >= self._touch_due:
            await self.touch()
        return known.caller

    def forget(self) -> None:
        """What is known of keys may have changed just now."""
        self._known.clear()
        self._unknown.clear()
        self._any_until = 0.0

    def _refused(self) -> Problem:
        challenge = {"WWW-Authenticate": 'Bearer realm="holdfast", error="invalid_token"'}
        return Problem("UNAUTHENTICATED", "this key is not known, or not any more", headers=challenge)

    async def _find(self, digest: bytes, request: Request) -> _Known:
        """Look up a key that is not remembered. An unknown one that is sent again is no new guess."""
        if self._clock.monotonic() < self._unknown.get(digest, 0.0):
            raise self._refused()
        asking = self._asking.get(digest)
        if asking is None:  # who comes meanwhile with the same key waits for the same answer
            asking = self._asking[digest] = asyncio.ensure_future(self._ask(digest))
        known = await asyncio.shield(asking)
        if known is None:
            raise self._guessed(request)
        return known

    async def _ask(self, digest: bytes) -> _Known | None:
        now = self._clock.monotonic()
        try:
            if digest in self._known:  # it was valid a moment ago: it does not wait behind guesses
                key = await (await self._store()).key(digest)
            else:
                async with self._look_ups:
                    key = await (await self._store()).key(digest)
        finally:
            del self._asking[digest]
        if key is None or not compare_digest(key.digest, digest):
            self._known.pop(digest, None)
            _bounded(self._unknown)[digest] = now + BELIEVED_FOR
            return None
        found = _bounded(self._known)[digest] = _Known(now + BELIEVED_FOR, key, Caller.of(key))
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

    async def touch(self, *, now: bool = False) -> None:
        """Write down which keys were used, where that is due: one request in many waits for it."""
        if not self._used or not (now or self._clock.monotonic() >= self._touch_due):
            return
        self._touch_due = self._clock.monotonic() + TOUCH_EVERY
        used, self._used = self._used, set()
        try:
            await (await self._store()).touch_keys(used)
        except StoreError as error:
            self._used |= used
            log.warning("api_key.use_not_recorded", reason=type(error).__name__)

    async def _is_neighbour(self, request: Request) -> bool:
        if self._without_key is WithoutKey.NEVER or not is_local(request):
            return False
        return self._without_key is WithoutKey.LOOPBACK or not await self._there_are_keys()

    async def _there_are_keys(self) -> bool:
        now = self._clock.monotonic()
        if now >= self._any_until:
            self._any = bool(await (await self._store()).keys())
            self._any_until = now + BELIEVED_FOR / 5
        return self._any

    async def _store(self) -> Store:
        return (await self._app.engine()).store


def _bounded(remembered: dict[K, V]) -> dict[K, V]:
    if len(remembered) >= _MOST_REMEMBERED:
        remembered.clear()
    return remembered


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
    # A page from elsewhere can reach this machine by a name of its own that points here: its Host or Origin tells.
    hosts, origins = headers.getlist("host"), headers.getlist("origin")
    named = [_hostname(f"//{host}") for host in hosts] + [_hostname(origin) for origin in origins]
    return len(hosts) == 1 and len(origins) <= 1 and all(map(is_loopback, named))


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:  # not every server that runs us refuses a malformed header
        return None


def is_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False
