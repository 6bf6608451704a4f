"""Authenticates callers by their Holdfast key (`Authorization: Bearer …`, or signed in to the page) and checks what they may do.

A user's key reaches the user's own screenshots; an organisation's key reaches those of all owners whom its
account pays for.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from holdfast import Holdfast, UsageError
from holdfast.contrib.credits import Credits
from systems.common.pages.sign_in import SignIn
from systems.screenshots.web.problems import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An authenticated caller.

    Each `must_…` raises `Refused` with FORBIDDEN if the caller lacks the permission.
    """

    owner: str  #: the owner of the screenshots that this caller requests
    role: str
    name: str  #: recorded as the author of its actions

    def must_ask(self) -> None:
        """Check that the caller may request and retry screenshots."""
        if self.role == "viewer":
            raise Refused("FORBIDDEN", "This key is read-only.")

    def must_operate(self) -> None:
        """Check that the caller may read the figures of the service."""
        if self.role == "owner":
            raise Refused("FORBIDDEN", "This is for operators of the service.")


class Callers:
    """Finds the caller of each request."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self.sign_in = SignIn(app, "screenshots")

    async def of(self, request: Request) -> Caller:
        """Return the caller by the request's key.

        Raises `Refused` with 401 when the key is missing or unknown.
        """
        caller = await self.find(request)
        if caller is None:
            raise Refused("UNAUTHENTICATED", headers={"www-authenticate": 'Bearer realm="screenshots"'})
        return caller

    async def find(self, request: Request) -> Caller | None:
        """Return the caller by the request's key, or None."""
        key = await self.sign_in.key_of(request)
        if key is None:
            return None
        owner = key.owner or f"key:{key.id}"
        return Caller(owner=owner, role=str(key.role), name=f"{owner} (key {key.name or key.id})")

    async def must_reach(self, caller: Caller, owner: str | None) -> None:
        """Raise `Refused` unless the caller may read what belongs to *owner*.

        *owner* is None for a job without one, which only operators may read.
        """
        if caller.role != "owner" or owner == caller.owner:
            return
        if owner is None or await self._payer(owner) != caller.owner:
            raise Refused("FORBIDDEN")

    async def _payer(self, owner: str) -> str | None:
        try:
            return (await Credits.of(self._app).account(owner)).paid_by
        except UsageError:  # the owner has no account
            return None
