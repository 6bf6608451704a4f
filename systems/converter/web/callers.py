"""Who asks, and what it may: a browser with its session, or a program with a key of Holdfast (`Authorization: Bearer …`)."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from holdfast import Holdfast, JobRow
from systems.common.asking import key_of
from systems.converter.codes import Code
from systems.converter.settings import CookieSecure
from systems.converter.web.problems import Refused
from systems.converter.web.sessions import COOKIE, Sessions

#: Where in a request's scope the value of Set-Cookie is left for the answer.
SET_COOKIE = "converter.set_cookie"
_SAFE = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    owner: str  #: whose uploads are those of this caller
    reaches_all: bool = False  #: sees everybody's jobs
    changes: bool = True  #: may upload, retry and cancel
    address: str = ""  #: where a browser without a session calls from

    @property
    def scope(self) -> str:
        """What uploads are counted by: leaving the cookie behind does not make a new one."""
        return f"address:{self.address}" if self.address else self.owner

    def must_reach(self, row: JobRow) -> None:
        if not self.reaches_all and row.owner != self.owner:
            raise Refused(Code.FORBIDDEN)

    def must_prefer(self, priority: str) -> None:
        """High priority overtakes other people's files."""
        if priority == "high" and not self.reaches_all:
            raise Refused(Code.FORBIDDEN, "High priority needs an operator's key; send normal or low.")

    def must_change(self) -> None:
        if not self.changes:
            raise Refused(Code.FORBIDDEN, "This key may look, and change nothing.")


class Callers:
    def __init__(self, app: Holdfast, sessions: Sessions, cookie_secure: CookieSecure) -> None:
        self._app, self._sessions, self._cookie_secure = app, sessions, cookie_secure

    async def of(self, request: Request) -> Caller:
        """Return the caller that sent *request*. One without a cookie is new and gets a name with the response."""
        if "authorization" in request.headers:
            return await self._by_key(request)
        if request.method not in _SAFE:
            _must_be_our_page(request)
        name, renew = self._sessions.read(request.cookies.get(COOKIE, ""))
        address = "" if name else (request.client.host if request.client else "unknown")
        name = name or self._sessions.new()
        if renew:
            request.scope[SET_COOKIE] = self._sessions.header(name, secure=self._is_secure(request))
        return Caller(owner=f"session:{name}", address=address)

    def _is_secure(self, request: Request) -> bool:
        """Headers of a proxy (`X-Forwarded-Proto`) are not believed: anybody can send them."""
        if self._cookie_secure == "auto":
            return request.url.scheme == "https"
        return self._cookie_secure == "always"

    async def _by_key(self, request: Request) -> Caller:
        key = await key_of(self._app, request)
        if key is None:
            challenge = {"www-authenticate": 'Bearer realm="converter", error="invalid_token"'}
            detail = "This key is not known, or not any more."
            raise Refused(Code.FORBIDDEN, detail, status=401, headers=challenge)
        if key.role == "owner":
            return Caller(owner=key.owner or "")
        return Caller(owner=f"key:{key.id}", reaches_all=True, changes=key.role != "viewer")


def _must_be_our_page(request: Request) -> None:
    """A page from elsewhere must not upload or retry in a visitor's name. SameSite keeps its requests without the cookie;
    this refuses them, so that they leave nothing behind either. Programs that are no browser send none of these."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    host = request.headers.get("host", "")
    origins = request.headers.getlist("origin")
    if site not in ("same-origin", "none") or any(origin.partition("://")[2] != host for origin in origins):
        raise Refused(Code.FORBIDDEN, "This request was made by a page of another site.")
