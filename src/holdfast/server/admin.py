"""`/admin`: what operators of the house do by hand: stuck jobs, and the duties that move jobs by themselves (S4, S5)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import Field

from holdfast.domain.access import Action
from holdfast.domain.job import StuckJob
from holdfast.domain.lanes import ScopeKind
from holdfast.engine.recovery import BATCH
from holdfast.engine.stuck import stuck_view
from holdfast.server.pagination import LimitQuery, capped
from holdfast.server.responses import answer
from holdfast.server.routing import allows, app_of, caller_of, router
from holdfast.server.types import Note, Number, RequestModel, ResponseModel, Span, Word
from holdfast.server.workers import WorkerView, worker_view


class Type(StrEnum):
    """What the scheduler of retries does by itself, and which duty that is."""

    STUCK_JOBS = "STUCK_JOBS"  # the sweep for attempts that run too long, never the reclaim of lost leases
    FAILED_JOBS = "FAILED_JOBS"  # automatic retries
    DELAYED_JOBS = "DELAYED_JOBS"  # all jobs that are due later

    @property
    def duty(self) -> str:
        return {"STUCK_JOBS": "stuck", "FAILED_JOBS": "retries", "DELAYED_JOBS": "delayed"}[self.value]


Types = Annotated[list[Type], Field(min_length=1, max_length=3, examples=[["STUCK_JOBS"]])]


class PauseTypesRequest(RequestModel):
    duration: Span | None = Field(
        default=None, description="After it they resume by themselves; null: when resumed."
    )
    types: Types = Field(default_factory=lambda: list(Type))
    reason: Note = ""


class ResumeTypesRequest(RequestModel):
    types: Types = Field(default_factory=lambda: list(Type))


class PausedTypes(ResponseModel):
    paused: list[Type]
    duration: str | None


class ResumedTypes(ResponseModel):
    resumed: list[Type] = Field(description="Those of them that were paused.")


class StuckView(ResponseModel):
    id: str
    task: str
    queue: str
    attempt: int
    max_attempts: int
    worker: str
    epoch: int
    longer_than: str = Field(description="How long an attempt of its task may take.", examples=["30m"])


class StuckJobs(ResponseModel):
    jobs: list[StuckView]


class StuckQuery(RequestModel):
    longer_than: Span | None = Field(
        default=None, description="Instead of what each task says.", examples=["30m"]
    )
    tasks: list[Word] = Field(default_factory=list, max_length=50, description="Only these. Default: all.")
    owner: Word | None = Field(default=None, description="Only of this owner.")
    ids: list[Word] = Field(
        default_factory=list, max_length=BATCH, description="Only these jobs. Default: all."
    )
    limit: Annotated[int, Field(ge=1, le=BATCH), Number] = 100


class ReclaimedJobs(ResponseModel):
    found: int
    processed: int = Field(description="Taken back from their workers: retried, or dead letters.")


class WorkersStatus(ResponseModel):
    workers: list[WorkerView]
    count: int
    busy: int = Field(description="Workers that hold jobs.")
    leases: int
    paused: list[str] = Field(description="Duties that are paused.")


routes = router("admin")


@routes.get(
    "/admin/workers/status",
    response_model=WorkersStatus,
    summary="The workers, and what is paused",
    **allows(Action.LOOK),
)
async def get_workers_status(request: Request) -> Response:
    app = app_of(request)
    workers, holds = await app.workers(), await app.holds()
    paused = sorted({held.scope.name for held in holds if held.scope.kind is ScopeKind.MAINTENANCE})
    return answer(
        {
            "workers": [worker_view(one) for one in workers],
            "count": len(workers),
            "busy": sum(one.leases > 0 for one in workers),
            "leases": sum(one.leases for one in workers),
            "paused": paused,
        }
    )


@routes.get(
    "/admin/jobs/stuck",
    response_model=StuckJobs,
    summary="Attempts that run on for too long while their worker lives",
    **allows(Action.LOOK),
)
async def list_stuck_jobs(
    request: Request,
    longer_than: Annotated[Span | None, Query()] = None,
    task: Annotated[Word | None, Query()] = None,
    owner: Annotated[Word | None, Query()] = None,
    limit: LimitQuery = 100,
) -> Response:
    tasks, most = [] if task is None else [task], min(capped(limit), BATCH)
    return await _list(request, StuckQuery(longer_than=longer_than, tasks=tasks, owner=owner, limit=most))


@routes.post(
    "/admin/jobs/stuck",
    response_model=StuckJobs,
    summary="The same, by more than fits in a URL",
    **allows(Action.LOOK),
)
async def search_stuck_jobs(request: Request, body: StuckQuery | None = None) -> Response:
    return await _list(request, body or StuckQuery())


@routes.post(
    "/admin/jobs/process-stuck",
    response_model=ReclaimedJobs,
    summary="Take stuck jobs back from their workers",
    **allows(Action.OPERATE),
)
async def process_stuck_jobs(request: Request, body: StuckQuery | None = None) -> Response:
    found = await _find(request, body or StuckQuery())
    done = await app_of(request).reclaim(found, by=caller_of(request).name)
    return answer({"found": len(found), "processed": done})


async def _list(request: Request, asked: StuckQuery) -> Response:
    return answer({"jobs": [stuck_view(one) for one in await _find(request, asked)]})


async def _find(request: Request, asked: StuckQuery) -> list[StuckJob]:
    return await app_of(request).stuck(
        longer_than=asked.longer_than,
        task=asked.tasks or None,
        owner=asked.owner,
        ids=asked.ids or None,
        limit=asked.limit,
    )


@routes.post(
    "/admin/retry-scheduler/pause",
    response_model=PausedTypes,
    summary="Hold what moves jobs by itself",
    **allows(Action.OPERATE),
)
async def pause_retry_scheduler(request: Request, body: PauseTypesRequest | None = None) -> Response:
    asked, by = body or PauseTypesRequest(), caller_of(request).name
    for one in asked.types:
        await app_of(request).pause(
            one.duty, kind=ScopeKind.MAINTENANCE, duration=asked.duration, reason=asked.reason, by=by
        )
    return answer({"paused": asked.types, "duration": asked.duration})


@routes.post(
    "/admin/retry-scheduler/resume",
    response_model=ResumedTypes,
    summary="Let it go on",
    **allows(Action.OPERATE),
)
async def resume_retry_scheduler(request: Request, body: ResumeTypesRequest | None = None) -> Response:
    asked, by = body or ResumeTypesRequest(), caller_of(request).name
    was = [
        one
        for one in asked.types
        if await app_of(request).resume(one.duty, kind=ScopeKind.MAINTENANCE, by=by)
    ]
    return answer({"resumed": was})
