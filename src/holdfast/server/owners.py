"""`/owners`: the limits of owners, and what they have used of their quotas."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Path, Request, Response
from pydantic import Field

from holdfast.engine.access import Action
from holdfast.engine.owners import OwnerRow
from holdfast.server.problems import Problem
from holdfast.server.responses import answer
from holdfast.server.routing import allows, app_of, caller_of, router
from holdfast.server.types import ResponseModel


class PeriodUsage(ResponseModel):
    used: float
    limit: float | None = Field(description="null: no limit, and the use is not counted.")


class QuotaView(ResponseModel):
    day: PeriodUsage
    month: PeriodUsage


class OwnerView(ResponseModel):
    """Days and months are those of UTC."""

    owner: str
    weight: float = Field(description="Its share where owners are served in turn.")
    rate: str | None = Field(description="How often its jobs may start.", examples=["100/1m"])
    concurrency: int | None
    jobs: QuotaView
    cost: QuotaView
    manual_retries: QuotaView


class OwnerList(ResponseModel):
    owners: list[OwnerView]


routes = router("owners")


@routes.get("/owners", response_model=OwnerList, **allows(Action.LOOK))
async def list_owners(request: Request) -> Response:
    """List the owners that the policy file names."""
    return answer({"owners": [_view(row) for row in await app_of(request).queues.owners()]})


@routes.get("/owners/{owner:path}", response_model=OwnerView, **allows(Action.SEE))
async def get_owner(
    request: Request, owner: Annotated[str, Path(max_length=500, examples=["alice"])]
) -> Response:
    """Get the limits of an owner and what it has used."""
    caller_of(request).must_reach(owner)
    if not owner or not owner.isprintable():
        raise Problem("NOT_FOUND", "no owner has this name")
    return answer(_view(await app_of(request).queues.owner(owner)))


def _view(row: OwnerRow) -> dict[str, Any]:
    return asdict(row) | {"rate": None if row.rate is None else str(row.rate)}
