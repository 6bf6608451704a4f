"""`/policies`: the policies in force and where they come from; override them while everything runs."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic import Field

from holdfast.engine.access import Action
from holdfast.server.pagination import LimitQuery, capped
from holdfast.server.responses import answer, token_of
from holdfast.server.routing import allows, app_of, caller_of, router
from holdfast.server.types import Note, Number, RequestModel, ResponseModel, Span, Word, picked
from holdfast.tasks.policy_file.in_force import PolicyValue
from holdfast.tasks.policy_file.overrides import Override

_KEY = "As in holdfast.toml."
_EXAMPLE = "tasks.convert.max_attempts"
KeyField = Annotated[Word, Field(description=_KEY, examples=[_EXAMPLE])]
VersionField = Annotated[int, Field(ge=0, le=2**53), Number]


class OverrideView(ResponseModel):
    key: str = Field(description=_KEY, examples=[_EXAMPLE])
    value: Any = Field(examples=[5])
    version: int = Field(description="Grows with every change of any override.")
    by: str
    reason: str
    set_at: datetime
    expires_at: datetime | None = Field(description="null: it stays until it is unset.")
    ended_at: datetime | None = Field(description="null: it is in force, or has just expired.")
    ended_by: str | None
    ended_reason: str | None


class PolicyView(ResponseModel):
    key: str = Field(description=_KEY, examples=[_EXAMPLE])
    value: Any = Field(description="null: none.", examples=[5])
    source: str = Field(description="code, file or override.", examples=["override"])
    place: str | None = Field(description="The file and its line.", examples=["holdfast.toml:3"])
    override: OverrideView | None
    without: Any = Field(description="What it would be without its override.", examples=[3])
    unknown: bool = Field(description="The app declares no such task.")
    refused: str | None = Field(description="Why the override is not in force here.")


class PolicyList(ResponseModel):
    policies: list[PolicyView]


class OverrideList(ResponseModel):
    overrides: list[OverrideView]


class OverrideHistory(OverrideList):
    next: int | None = Field(description="`before` of the next page; null: this was the last.")


class PolicyExport(ResponseModel):
    toml: str


class SetPolicyRequest(RequestModel):
    key: KeyField
    value: Any = Field(description="As in holdfast.toml; a table is an object.", examples=[5])
    reason: Note = ""
    lasts: Span | None = Field(default=None, description="How long; null: until it is unset.")
    version: VersionField | None = Field(
        default=None, description="Only if the override has this version; 0: if there is none."
    )


class UnsetPolicyRequest(RequestModel):
    key: KeyField
    reason: Note = ""
    version: VersionField | None = Field(default=None, description="Only if the override has this version.")


class UnsetPolicy(ResponseModel):
    key: str
    unset: bool = Field(description="Whether it was overridden.")


routes = router("policies")


@routes.get("/policies", response_model=PolicyList, **allows(Action.LOOK))
async def list_policies(
    request: Request,
    under: Annotated[
        Word | None, Query(description="Only keys of this section.", examples=["tasks.convert"])
    ] = None,
) -> Response:
    """List the policies in force and where each comes from."""
    found = await app_of(request).policies.in_force(under)
    return answer({"policies": [_view(one) for one in found]})


@routes.get("/policies/overrides", response_model=OverrideList, **allows(Action.LOOK))
async def list_overrides(request: Request) -> Response:
    """List the overrides in force, oldest first."""
    return answer({"overrides": [_override(one) for one in await app_of(request).policies.list()]})


@routes.get("/policies/history", response_model=OverrideHistory, **allows(Action.LOOK))
async def list_override_history(
    request: Request,
    key: Annotated[Word | None, Query(description="Only overrides of this key.", examples=[_EXAMPLE])] = None,
    before: Annotated[
        int | None, Query(ge=0, le=2**53, description="Only older ones: versions below this.")
    ] = None,
    limit: LimitQuery = 100,
) -> Response:
    """List overrides, those that have ended too, newest first."""
    most = capped(limit)
    found = await app_of(request).policies.history(key, before=before, limit=most)
    older = found[-1].version if len(found) == most else None
    return answer({"overrides": [_override(one) for one in found], "next": older})


@routes.get("/policies/export", response_model=PolicyExport, **allows(Action.LOOK))
async def export_overrides(request: Request) -> Response:
    """Get the overrides in force as the text of a policy file."""
    return answer({"toml": await app_of(request).policies.export()})


@routes.post("/policies/set", response_model=OverrideView, **allows(Action.OPERATE, 409))
async def set_policy(request: Request, body: SetPolicyRequest) -> Response:
    """Override one key of a policy in all processes."""
    found = await app_of(request).policies.set(
        body.key,
        body.value,
        reason=body.reason,
        by=caller_of(request).name,
        lasts=body.lasts,
        version=body.version,
        token=token_of(request),
    )
    return answer(_override(found))


@routes.post("/policies/unset", response_model=UnsetPolicy, **allows(Action.OPERATE, 409))
async def unset_policy(request: Request, body: UnsetPolicyRequest) -> Response:
    """End an override."""
    ended = await app_of(request).policies.unset(
        body.key, reason=body.reason, by=caller_of(request).name, version=body.version
    )
    return answer({"key": body.key, "unset": ended})


def _override(override: Override) -> dict[str, Any]:
    return picked(override, OverrideView)


def _view(value: PolicyValue) -> dict[str, Any]:
    return asdict(value) | {"override": None if value.override is None else _override(value.override)}
