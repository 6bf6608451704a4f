"""Authenticates callers by their Holdfast key (`Authorization: Bearer …`) and checks what they may do."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from holdfast import Holdfast, JobRow
from systems.common.requests import bearer_key
from systems.reports.codes import Code
from systems.reports.rules import KEY
from systems.reports.web.problems import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An authenticated caller.

    Each `must_…` raises `Refused` with FORBIDDEN if the caller lacks the permission.
    """

    owner: str  #: the owner of the reports that this caller requests
    role: str

    def must_reach(self, row: JobRow) -> None:
        """Check that the caller may read this report."""
        if self.role == "owner" and row.owner != self.owner:
            raise Refused(Code.FORBIDDEN)

    def must_ask(self) -> None:
        """Check that the caller may request reports."""
        if self.role == "viewer":
            raise Refused(Code.FORBIDDEN, "This key is read-only.")

    def must_operate(self, *, change: bool = True) -> None:
        """Check that the caller is an operator; without *change*, a viewer is enough.

        Captures are for operators only, because they hold other owners' data.
        """
        allowed = ("operator", "admin") if change else ("operator", "admin", "viewer")
        if self.role not in allowed:
            raise Refused(Code.FORBIDDEN, "This is for operators.")


class Callers:
    """Finds the caller of each request."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app

    async def of(self, request: Request) -> Caller:
        """Return the caller by the request's key.

        Raises `Refused` with 401 when the key is missing or unknown.
        """
        key = await bearer_key(self._app, request)
        if key is None:
            challenge = {"www-authenticate": 'Bearer realm="reports"'}
            detail = "This needs a key: holdfast keys create, then Authorization: Bearer …"
            raise Refused(Code.FORBIDDEN, detail, status=401, headers=challenge)
        if key.role == "owner":
            return Caller(owner=key.owner or "", role="owner")
        return Caller(owner=f"{KEY}{key.id}", role=str(key.role))
