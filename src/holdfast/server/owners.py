"""`/owners`: what an owner may use, and has used."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Request, Response
from pydantic import Field

from holdfast.domain.access import Action
from holdfast.engine.admission import MILLI
from holdfast.server.context import ApiContext
from holdfast.server.problems import Problem
from holdfast.server.responses import answer
from holdfast.server.routing import allows, app_of, caller_of, context_of, router
from holdfast.server.types import ResponseModel


class PeriodUsage(ResponseModel):
    used: float
    limit: float | None = Field(description="null: no bound, and then its use is not counted.")


class QuotaView(ResponseModel):
    day: PeriodUsage
    month: PeriodUsage


class OwnerView(ResponseModel):
    """Days and months are of UTC."""

    owner: str
    weight: float = Field(description="Its share in fair lines.")
    rate: str | None = Field(description="How often its jobs may start.", examples=["100/1m"])
    concurrency: int | None
    jobs: QuotaView
    cost: QuotaView


class Owners(ResponseModel):
    owners: list[OwnerView]


routes = router("owners")


@routes.get(
    "/owners",
    response_model=Owners,
    summary="The owners that the policy file names",
    **allows(Action.LOOK),
)
async def list_owners(request: Request) -> Response:
    names = sorted(app_of(request).policies.owners)
    return answer({"owners": [await _view(context_of(request), name) for name in names]})


@routes.get(
    "/owners/{owner:path}",
    response_model=OwnerView,
    summary="What an owner may use, and has used",
    **allows(Action.SEE),
)
async def get_owner(
    request: Request, owner: Annotated[str, Path(max_length=500, examples=["alice"])]
) -> Response:
    caller_of(request).must_reach(owner)
    if not owner or not owner.isprintable():
        raise Problem("NOT_FOUND", "no owner has this name")
    return answer(await _view(context_of(request), owner))


async def _view(door: ApiContext, owner: str) -> dict[str, Any]:
    store, policies = await door.store(), door.app.policies
    quota, policy = policies.quota_of(owner), policies.owner(owner)
    jobs, cost = await store.usage(f"quota of {owner}"), await store.usage(f"cost of {owner}")
    return {
        "owner": owner,
        "weight": policy.weight,
        "rate": None if policy.limit.rate is None else str(policy.limit.rate),
        "concurrency": policy.limit.concurrency,
        "jobs": {
            "day": {"used": jobs.get("day", 0), "limit": quota.per_day},
            "month": {"used": jobs.get("month", 0), "limit": quota.per_month},
        },
        "cost": {
            "day": {"used": cost.get("day", 0) / MILLI, "limit": quota.cost_per_day},
            "month": {"used": cost.get("month", 0) / MILLI, "limit": quota.cost_per_month},
        },
    }
