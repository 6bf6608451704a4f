"""Identify callers and check their rights: a browser by its session, a program by its API key of Holdfast."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from holdfast import Holdfast, JobRow
from systems.common.requests import bearer_key, is_own_page
from systems.converter.codes import Code
from systems.converter.settings import CookieSecure
from systems.converter.web.problems import Refused
from systems.converter.web.sessions import COOKIE, Sessions

#: The key in a request's scope that holds the value of Set-Cookie for the response.
SET_COOKIE = "converter.set_cookie"
_SAFE = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The sender of a request, and what it may do."""

    owner: str  #: the owner of the jobs that this caller creates
    reaches_all: bool = False  #: sees the jobs of all owners
    changes: bool = True  #: may upload, retry and cancel
    address: str = ""  #: the address of a browser without a session

    @property
    def scope(self) -> str:
        """Return the key of the upload limit.

        Without a session it is the address, so dropping the cookie resets nothing.
        """
        return f"address:{self.address}" if self.address else self.owner

    def must_reach(self, row: JobRow) -> None:
        """Raise `Refused` unless the caller may see the job."""
        if not self.reaches_all and row.owner != self.owner:
            raise Refused(Code.FORBIDDEN)

    def must_prefer(self, priority: str) -> None:
        """Raise `Refused` unless the caller may use *priority*: a high one overtakes the files of others."""
        if priority == "high" and not self.reaches_all:
            raise Refused(Code.FORBIDDEN, "High priority needs an operator's key; send normal or low.")

    def must_change(self) -> None:
        """Raise `Refused` unless the caller may upload, retry and cancel."""
        if not self.changes:
            raise Refused(Code.FORBIDDEN, "This key may only read.")


class Callers:
    """Finds the caller of a request."""

    def __init__(self, app: Holdfast, sessions: Sessions, cookie_secure: CookieSecure) -> None:
        self._app, self._sessions, self._cookie_secure = app, sessions, cookie_secure

    async def of(self, request: Request) -> Caller:
        """Return the caller of *request*. A browser without a valid cookie gets a new session.

        Raises:
            Refused: The API key is not valid, or a page of another site sent the request.
        """
        if "authorization" in request.headers:
            return await self._by_key(request)
        if request.method not in _SAFE:
            _must_be_own_page(request)
        name, renew = self._sessions.read(request.cookies.get(COOKIE, ""))
        address = "" if name else (request.client.host if request.client else "unknown")
        name = name or self._sessions.new()
        if renew:
            request.scope[SET_COOKIE] = self._sessions.header(name, secure=self._is_secure(request))
        return Caller(owner=f"session:{name}", address=address)

    def _is_secure(self, request: Request) -> bool:
        # A proxy's X-Forwarded-Proto is not trusted: any client can send it.
        if self._cookie_secure == "auto":
            return request.url.scheme == "https"
        return self._cookie_secure == "always"

    async def _by_key(self, request: Request) -> Caller:
        key = await bearer_key(self._app, request)
        if key is None:
            challenge = {"www-authenticate": 'Bearer realm="converter", error="invalid_token"'}
            detail = "This API key is unknown, revoked or expired."
            raise Refused(Code.FORBIDDEN, detail, status=401, headers=challenge)
        if key.role == "owner":
            return Caller(owner=key.owner or "")
        return Caller(owner=f"key:{key.id}", reaches_all=True, changes=key.role != "viewer")


def _must_be_own_page(request: Request) -> None:
    """Raise `Refused` if a page of another site sent the request.

    SameSite already sends its requests without the cookie, but they would still create jobs.
    """
    if not is_own_page(request):
        raise Refused(Code.FORBIDDEN, "This request was sent by a page of another site.")
