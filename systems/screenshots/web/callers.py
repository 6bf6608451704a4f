"""Who asks, and what it may: a program with a key of Holdfast (`Authorization: Bearer …`).

A key of a user reaches the user's own screenshots; a key of an organisation those of all whom its account pays for.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from holdfast import Holdfast, UsageError
from systems.common.asking import key_of
from systems.screenshots.web.problems import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    owner: str  #: whose screenshots those are that this caller asks for
    role: str
    name: str  #: on record as the one who did it

    def must_ask(self) -> None:
        if self.role == "viewer":
            raise Refused("FORBIDDEN", "This key may look, and change nothing.")

    def must_operate(self) -> None:
        if self.role == "owner":
            raise Refused("FORBIDDEN", "This is for those who run the service.")


class Callers:
    def __init__(self, app: Holdfast) -> None:
        self._app = app

    async def of(self, request: Request) -> Caller:
        key = await key_of(self._app, request)
        if key is None:
            raise Refused("UNAUTHENTICATED", headers={"www-authenticate": 'Bearer realm="screenshots"'})
        owner = key.owner or f"key:{key.id}"
        return Caller(owner=owner, role=str(key.role), name=f"{owner} (key {key.name or key.id})")

    async def must_reach(self, caller: Caller, owner: str | None) -> None:
        """What belongs to *owner* (None: to nobody)."""
        if caller.role != "owner" or owner == caller.owner:
            return
        if owner is None or await self._payer(owner) != caller.owner:
            raise Refused("FORBIDDEN")

    async def _payer(self, owner: str) -> str | None:
        try:
            return (await self._app.credits.account(owner)).paid_by
        except UsageError:  # it has no account
            return None
