"""Authenticates callers by their Holdfast key (`Authorization: Bearer …`, or signed in to the page) and checks what they may do."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from holdfast import Holdfast, JobRow
from systems.common.pages.sign_in import SignIn
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
        if self.sees is not None and row.owner != self.owner:
            raise Refused(Code.FORBIDDEN)

    @property
    def sees(self) -> str | None:
        """Return the owner whose reports the caller may read; None for all."""
        return self.owner if self.role == "owner" else None

    def must_ask(self) -> None:
        """Check that the caller may request reports."""
        if self.role == "viewer":
            raise Refused(Code.FORBIDDEN, "This key is read-only.")

    @property
    def operates(self) -> bool:
        """Return whether the caller is an operator."""
        return self.role in ("operator", "admin")

    def must_operate(self, *, change: bool = True) -> None:
        """Check that the caller is an operator; without *change*, a viewer is enough.

        Captures are for operators only, because they hold other owners' data.
        """
        if not self.operates and (change or self.role != "viewer"):
            raise Refused(Code.FORBIDDEN, "This is for operators.")


class Callers:
    """Finds the caller of each request."""

    def __init__(self, app: Holdfast) -> None:
        self.sign_in = SignIn(app, "reports")

    async def of(self, request: Request) -> Caller:
        """Return the caller by the request's key.

        Raises `Refused` with 401 when the key is missing or unknown.
        """
        caller = await self.find(request)
        if caller is None:
            challenge = {"www-authenticate": 'Bearer realm="reports"'}
            detail = "This needs a key: holdfast keys create, then Authorization: Bearer …"
            raise Refused(Code.FORBIDDEN, detail, status=401, headers=challenge)
        return caller

    async def find(self, request: Request) -> Caller | None:
        """Return the caller by the request's key, or None."""
        key = await self.sign_in.key_of(request)
        if key is None:
            return None
        if key.role == "owner":
            return Caller(owner=key.owner or "", role="owner")
        return Caller(owner=f"{KEY}{key.id}", role=str(key.role))
