"""Who asks: a program with a key of Holdfast (`Authorization: Bearer …`); on this machine also without, until there is a key."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from holdfast import Holdfast, JobRow
from holdfast.server import is_local
from systems.common.asking import key_of
from systems.grading.web.problems import Refused, no_such_submission

_CHALLENGE = {"www-authenticate": 'Bearer realm="grading"'}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    name: str
    owner: str | None  #: whose submissions are those of this caller; None: everybody's
    changes: bool
    operates: bool  #: sees dead letters and the outbox, and sends again

    def must_reach(self, row: JobRow) -> None:
        if row.task != "grade" or (self.owner is not None and row.owner != self.owner):
            raise no_such_submission()  # whether it is there is nobody else's business

    def must_change(self) -> None:
        if not self.changes:
            raise Refused(403, "FORBIDDEN", "This key may look, and change nothing.")

    def must_operate(self) -> None:
        if not self.operates:
            raise Refused(403, "FORBIDDEN", "This is for those who run the service.")


class Callers:
    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._has_keys = False

    async def of(self, request: Request) -> Caller:
        if "authorization" in request.headers:
            return await self._by_key(request)
        if not self._has_keys:
            self._has_keys = bool(await self._app.keys())
        if self._has_keys or not is_local(request):
            raise Refused(401, "NO_KEY", "Send a key as Authorization: Bearer …", _CHALLENGE)
        return Caller(name="local", owner=None, changes=True, operates=True)

    async def _by_key(self, request: Request) -> Caller:
        key = await key_of(self._app, request)
        if key is None:
            raise Refused(401, "NO_KEY", "This key is not known, or not any more.", _CHALLENGE)
        if key.role == "owner":
            return Caller(name=f"key:{key.id}", owner=key.owner or "", changes=True, operates=False)
        may = key.role != "viewer"
        return Caller(name=f"key:{key.id}", owner=None, changes=may, operates=may)
