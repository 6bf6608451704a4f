"""Identify callers by their API key of Holdfast (`Authorization: Bearer …`, or signed in to the page), and check their rights.

Until the first key exists, callers on this machine need none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import Request

from holdfast import Holdfast, JobRow
from holdfast.server import is_local
from systems.common.pages.sign_in import SignIn
from systems.grading.web.problems import Refused, no_such_submission

#: The name of a caller on this machine that needs no key.
LOCAL = "local"
_CHALLENGE = {"www-authenticate": 'Bearer realm="grading"'}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The sender of a request, and what it may do."""

    name: str
    owner: str | None  #: the owner whose submissions it sees; None for all
    changes: bool  #: may submit
    operates: bool  #: may see dead letters and the outbox, and send again

    def must_reach(self, row: JobRow) -> None:
        """Raise `Refused` unless the caller may see the submission."""
        if row.task != "grade" or (self.owner is not None and row.owner != self.owner):
            raise no_such_submission()  # do not reveal that another owner's submission exists

    def must_change(self) -> None:
        """Raise `Refused` unless the caller may submit."""
        if not self.changes:
            raise Refused(403, "FORBIDDEN", "This key may only read.")

    def must_operate(self) -> None:
        """Raise `Refused` unless the caller is an operator."""
        if not self.operates:
            raise Refused(403, "FORBIDDEN", "This needs an operator's key.")


class Callers:
    """Finds the caller of a request."""

    def __init__(self, app: Holdfast) -> None:
        self._app, self.sign_in = app, SignIn(app, "grading")
        self._has_keys = False

    async def of(self, request: Request) -> Caller:
        """Return the caller of *request*. Raise `Refused` without a valid key."""
        key = await self.sign_in.key_of(request)
        if key is not None:
            return _caller(key)
        if "authorization" in request.headers:
            raise Refused(401, "NO_KEY", "This API key is unknown, revoked or expired.", _CHALLENGE)
        if not self._has_keys:
            self._has_keys = bool(await self._app.keys.list())
        if self._has_keys or not is_local(request):
            raise Refused(401, "NO_KEY", "Send a key as Authorization: Bearer …", _CHALLENGE)
        return Caller(name=LOCAL, owner=None, changes=True, operates=True)


def _caller(key: Any) -> Caller:
    if key.role == "owner":
        return Caller(name=f"key:{key.id}", owner=key.owner or "", changes=True, operates=False)
    may_write = key.role != "viewer"
    return Caller(name=f"key:{key.id}", owner=None, changes=may_write, operates=may_write)
