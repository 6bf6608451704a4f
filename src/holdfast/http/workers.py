"""`/workers`: the worker processes that live."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Response
from pydantic import Field

from holdfast.domain.access import Action
from holdfast.domain.job import WorkerRow
from holdfast.http.answers import answer
from holdfast.http.door import Door
from holdfast.http.kinds import Told
from holdfast.http.routing import does, router


class WorkerView(Told):
    name: str
    started_at: datetime
    expires_at: datetime = Field(description="When it is taken for lost, unless it is heard of before.")
    queues: list[str] | None = Field(description="null: whichever its tasks are in.")
    leases: int = Field(description="How many jobs it holds.")


class Workers(Told):
    workers: list[WorkerView]


def routes(door: Door) -> APIRouter:
    here = router("workers")

    @here.get("/workers", response_model=Workers, summary="The workers that live", **does(Action.LOOK))
    async def list_workers() -> Response:
        return answer({"workers": [worker_view(one) for one in await door.app.workers()]})

    return here


def worker_view(worker: WorkerRow) -> dict[str, Any]:
    return {field.name: getattr(worker, field.name) for field in fields(worker)}
