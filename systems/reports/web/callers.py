"""Who asks, and what it may: a program with a key of Holdfast (`Authorization: Bearer …`)."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from holdfast import Holdfast, JobRow
from systems.common.asking import key_of
from systems.reports.codes import Code
from systems.reports.rules import KEY
from systems.reports.web.problems import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    owner: str  #: whose reports those are that this caller asks for
    role: str

    def must_reach(self, row: JobRow) -> None:
        if self.role == "owner" and row.owner != self.owner:
            raise Refused(Code.FORBIDDEN)

    def must_ask(self) -> None:
        if self.role == "viewer":
            raise Refused(Code.FORBIDDEN, "This key may look, and change nothing.")

    def must_operate(self, *, change: bool = True) -> None:
        """Captures hold what others sent and what the model said of it."""
        allowed = ("operator", "admin") if change else ("operator", "admin", "viewer")
        if self.role not in allowed:
            raise Refused(Code.FORBIDDEN, "This is for operators.")


class Callers:
    def __init__(self, app: Holdfast) -> None:
        self._app = app

    async def of(self, request: Request) -> Caller:
        key = await key_of(self._app, request)
        if key is None:
            challenge = {"www-authenticate": 'Bearer realm="reports"'}
            detail = "This needs a key: holdfast keys create, then Authorization: Bearer …"
            raise Refused(Code.FORBIDDEN, detail, status=401, headers=challenge)
        if key.role == "owner":
            return Caller(owner=key.owner or "", role="owner")
        return Caller(owner=f"{KEY}{key.id}", role=str(key.role))
