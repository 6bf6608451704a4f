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
from typing import NamedTuple
from urllib.parse import urlsplit

from fastapi import Request

from holdfast.app import Holdfast
from holdfast.domain.access import AccessKey, Action, Role
from holdfast.engine.access import PREFIX, digest_of
from holdfast.engine.ports import Clock, Store
from holdfast.errors import StoreError
from holdfast.http.problems import Problem
from holdfast.logs import Log

log = Log("holdfast.http")

#: Where in a request's scope the caller is.
CALLER = "holdfast.caller"
#: How long a key is believed without asking the store again: so long may a revoked one live on.
BELIEVED_FOR = 5.0
#: How often it is written down which keys were used.
TOUCH_EVERY = 10.0
#: Unknown keys that one client may try in a second, before they are refused unseen.
GUESSES_PER_SECOND = 20
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
    """Whoever is behind a request. *scope* is what its requests are counted under."""

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
        """On record: who tries doors that are closed to them is of interest."""
        log.warning("http.forbidden", caller=self.name, role=str(self.role), reason=detail)
        return Problem("FORBIDDEN", detail)


class _Known(NamedTuple):
    """What the store said of a key, and until when that is believed; no key: that there is none."""

    until: float
    key: AccessKey | None
    caller: Caller | None


#: Who comes in without a key.
NEIGHBOUR = Caller(name="loopback", role=Role.ADMIN, scope="loopback")


def refuse_key_in_url(query: list[tuple[str, str]], known: frozenset[str]) -> None:
    """URLs are kept in logs and histories. What was sent so is spent. *known* are the names that mean something else."""
    for name, value in query:
        if (name.lower() in _KEY_NAMES and name not in known) or value.startswith(PREFIX):
            raise Problem(
                "KEY_IN_URL", "send the key as `Authorization: Bearer …`, and make a new one: URLs are logged"
            )


class Keys:
    """Keys as the store knows them, remembered for a few seconds."""

    def __init__(self, app: Holdfast, clock: Clock, without_key: WithoutKey) -> None:
        self._app, self._clock, self._without_key = app, clock, without_key
        self._known: dict[bytes, _Known] = {}
        self._asking: dict[bytes, asyncio.Future[_Known]] = {}
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
            raise self._unknown()
        digest = digest_of(secret)
        known = self._known.get(digest)
        if known is None or self._clock.monotonic() >= known.until:
            known = await self._find(digest, request)
        if known.key is None or known.caller is None or not known.key.is_valid(self._clock.now()):
            raise self._unknown()
        self._used.add(known.key.id)
        if self._clock.monotonic() >= self._touch_due:
            await self.touch()
        return known.caller

    def forget(self) -> None:
        """What is known of keys may have changed just now."""
        self._known.clear()
        self._any_until = 0.0

    def _unknown(self) -> Problem:
        challenge = {"WWW-Authenticate": 'Bearer realm="holdfast", error="invalid_token"'}
        return Problem("UNAUTHENTICATED", "this key is not known, or not any more", headers=challenge)

    async def _find(self, digest: bytes, request: Request) -> _Known:
        asking = self._asking.get(digest)
        if asking is None:  # who comes meanwhile with the same key waits for the same answer
            now = self._clock.monotonic()
            self._refuse_guesser(request, int(now))
            asking = self._asking[digest] = asyncio.ensure_future(self._ask(digest, request, now))
        return await asyncio.shield(asking)

    async def _ask(self, digest: bytes, request: Request, now: float) -> _Known:
        try:
            key = await (await self._store()).key(digest)
        finally:
            del self._asking[digest]
        if key is not None and not compare_digest(key.digest, digest):
            key = None
        if key is None:
            self._count_guess(request, int(now))
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        known = _Known(now + BELIEVED_FOR, key, None if key is None else Caller.of(key))
        self._known[digest] = known
        return known

    def _refuse_guesser(self, request: Request, second: int) -> None:
        """Whoever tries keys that nobody has made must not keep the store busy."""
        if self._guesses.get(_host(request)) == (second, GUESSES_PER_SECOND):
            raise Problem(
                "RATE_LIMITED", "too many unknown keys; check yours, and wait", headers={"Retry-After": "1"}
            )

    def _count_guess(self, request: Request, second: int) -> None:
        last, count = self._guesses.pop(_host(request), (second, 0))
        if len(self._guesses) >= _MOST_REMEMBERED:
            self._guesses.clear()
        count = min(count + 1, GUESSES_PER_SECOND) if last == second else 1
        self._guesses[_host(request)] = (second, count)

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
            log.warning("http.keys_untouched", reason=type(error).__name__)

    async def _is_neighbour(self, request: Request) -> bool:
        if self._without_key is WithoutKey.NEVER or not _is_direct(request):
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


def _host(request: Request) -> str:
    return request.client.host if request.client else ""


def _is_direct(request: Request) -> bool:
    """A program on this machine has sent it, and no page in a browser has made it do so."""
    headers = request.headers
    if request.client is None or not is_loopback(request.client.host):
        return False
    if any(name in headers for name in _PROXIED):
        return False
    # A page from elsewhere can reach this machine by a name of its own that points here: its Host or Origin tells.
    origin = headers.get("origin")
    return is_loopback(urlsplit(f"//{headers.get('host', '')}").hostname) and (
        origin is None or is_loopback(urlsplit(origin).hostname)
    )


def is_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False
