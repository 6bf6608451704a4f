"""Sessions of the dashboard: a signed cookie that stands for a key, and one-time tokens of a server in development.

The cookie holds the digest of the key and when the session ends. The key is looked up with every request as if it were sent
itself, so a session ends with its key. The cookie counts only beside the header `Holdfast-Session`: a page of another site
cannot send that header without the permission of this server, which gives none (CSRF).
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from fastapi import Request, Response

from holdfast.errors import Conflict
from holdfast.jobs.machine import Clock

#: The header that the dashboard sends with every request.
HEADER = "holdfast-session"
#: How long a session lasts at most.
LASTS = timedelta(hours=12)
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A session of the key with this digest. None stands for a person who has the token that the server has printed."""

    digest: bytes | None
    ends_at: datetime


class SessionCookies:
    """Signs and reads the cookies of one API.

    Args:
        secret_keys: Returns the keys to sign with, the newest first. Servers with the same keys accept each other's cookies.
        clock: Says when a session has ended.
        random: Returns 32 random bytes.
    """

    def __init__(
        self, secret_keys: Callable[[], tuple[bytes, ...]], clock: Clock, random: Callable[[], bytes]
    ) -> None:
        self._secret_keys, self._clock, self._random = secret_keys, clock, random
        self._token: str | None = None
        self._own_key: bytes | None = None  #: for a server with a token and without keys: one process

    # -- tokens -------------------------------------------------------------------------------------------------------
    def new_token(self) -> str:
        """Return a token that opens one session. Print it only where the person who reads it may do everything anyway."""
        self._own_key = self._random()
        self._token = urlsafe_b64encode(self._random()).decode().rstrip("=")
        return self._token

    def redeem(self, token: str) -> bool:
        """Return whether *token* is the one that was printed, and not yet used."""
        if self._token is None or not hmac.compare_digest(token.encode(), self._token.encode()):
            return False
        self._token = None
        return True

    # -- cookies ------------------------------------------------------------------------------------------------------
    def open(self, request: Request, response: Response, digest: bytes | None) -> BrowserSession:
        """Begin a session for the key with this *digest*: let *response* set the cookie.

        Raises `Conflict` where this app has no key to sign with.
        """
        session = BrowserSession(digest, self._clock.now() + LASTS)
        self._set(request, response, self._write(session), None)
        return session

    def close(self, request: Request, response: Response) -> None:
        """Let *response* remove the cookie."""
        self._set(request, response, "", 0)

    def read(self, request: Request) -> BrowserSession | None:
        """Return the session of *request*, or None if it has none that is valid."""
        text = request.cookies.get(self._name(), "")
        head, _, signature = text.rpartition(".")
        if len(text) > _LONGEST or not any(
            hmac.compare_digest(signature.encode(), _sign(key, head)) for key in self._keys()
        ):
            return None
        who, _, end = head.partition(".")
        session = BrowserSession(bytes.fromhex(who) or None, datetime.fromisoformat(end))
        if self._clock.now() >= session.ends_at or (session.digest is None and self._own_key is None):
            return None
        return session

    def _set(self, request: Request, response: Response, value: str, max_age: int | None) -> None:
        """Let *response* set the cookie.

        It has no path: browsers then send it to `…/api/v1/` of this mount only, also behind a proxy that strips a prefix which
        this server does not know. A page that came by TLS says so by its Origin.
        """
        is_secure = request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
        response.set_cookie(
            self._name(), value, max_age, path=None, secure=is_secure, httponly=True, samesite="strict"
        )

    def _write(self, session: BrowserSession) -> str:
        head = f"{(session.digest or b'').hex()}.{session.ends_at.isoformat(timespec='seconds')}"
        return f"{head}.{_sign(self._keys()[0], head).decode()}"

    def _name(self) -> str:
        """Return the cookie's name. Ports share cookies, so each app on a machine needs a name of its own."""
        return f"holdfast_{_sign(self._keys()[-1], 'name')[:8].decode()}"

    def _keys(self) -> tuple[bytes, ...]:
        try:
            return self._secret_keys()
        except Conflict:
            if self._own_key is None:
                raise
            return (self._own_key,)


def _sign(key: bytes, text: str) -> bytes:
    return hmac.new(key, b"holdfast session\0" + text.encode(), sha256).hexdigest().encode()
