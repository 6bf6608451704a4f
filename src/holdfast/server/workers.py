"""`/workers`: list the running workers."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any

from fastapi import Request, Response
from pydantic import Field

from holdfast.engine.access import Action
from holdfast.jobs.job import WorkerRow
from holdfast.server.responses import answer
from holdfast.server.routing import allows, app_of, router
from holdfast.server.types import ResponseModel


class WorkerView(ResponseModel):
    name: str
    started_at: datetime
    expires_at: datetime = Field(description="When it counts as lost, unless its heartbeat arrives before.")
    queues: list[str] | None = Field(description="null: the queues of its tasks.")
    leases: int = Field(description="How many jobs it runs.")
    waiting: int = Field(description="How many of its handlers wait for another job to end.")
    version: str = Field(description="The version of Holdfast that it runs.")


class WorkerList(ResponseModel):
    workers: list[WorkerView]


routes = router("workers")


@routes.get("/workers", response_model=WorkerList, **allows(Action.LOOK))
async def list_workers(request: Request) -> Response:
    """List running workers."""
    return answer({"workers": [worker_view(one) for one in await app_of(request).queues.workers()]})


def worker_view(worker: WorkerRow) -> dict[str, Any]:
    return {field.name: getattr(worker, field.name) for field in fields(worker)}
