"""`/workers`: the worker processes that live."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any

from fastapi import Request, Response
from pydantic import Field

from holdfast.domain.access import Action
from holdfast.domain.job import WorkerRow
from holdfast.server.responses import answer
from holdfast.server.routing import allows, app_of, router
from holdfast.server.types import ResponseModel


class WorkerView(ResponseModel):
    name: str
    started_at: datetime
    expires_at: datetime = Field(description="When it is taken for lost, unless it is heard of before.")
    queues: list[str] | None = Field(description="null: whichever its tasks are in.")
    leases: int = Field(description="How many jobs it holds.")
    waiting: int = Field(description="How many of its handlers wait for another job to end.")


class Workers(ResponseModel):
    workers: list[WorkerView]


routes = router("workers")


@routes.get("/workers", response_model=Workers, summary="The workers that live", **allows(Action.LOOK))
async def list_workers(request: Request) -> Response:
    return answer({"workers": [worker_view(one) for one in await app_of(request).workers()]})


def worker_view(worker: WorkerRow) -> dict[str, Any]:
    return {field.name: getattr(worker, field.name) for field in fields(worker)}
