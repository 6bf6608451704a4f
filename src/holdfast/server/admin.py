"""`/admin`: find and reclaim stuck jobs, and pause the maintenance tasks that move jobs (S4, S5)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import Field

from holdfast.engine.access import Action
from holdfast.engine.recovery import BATCH
from holdfast.engine.stuck import stuck_view
from holdfast.jobs.job import StuckJob
from holdfast.jobs.lanes import ScopeKind
from holdfast.server.pagination import LimitQuery, capped
from holdfast.server.responses import answer
from holdfast.server.routing import allows, app_of, caller_of, router
from holdfast.server.types import Note, Number, RequestModel, ResponseModel, Span, Word
from holdfast.server.workers import WorkerView, worker_view


class Type(StrEnum):
    """What the scheduler of retries moves, and the maintenance task that does it."""

    STUCK_JOBS = "STUCK_JOBS"  # the sweep for attempts that run too long, never the reclaim of lost leases
    FAILED_JOBS = "FAILED_JOBS"  # automatic retries
    DELAYED_JOBS = "DELAYED_JOBS"  # all jobs that are due later

    @property
    def maintenance_task(self) -> str:
        return {"STUCK_JOBS": "stuck", "FAILED_JOBS": "retries", "DELAYED_JOBS": "delayed"}[self.value]


Types = Annotated[list[Type], Field(min_length=1, max_length=3, examples=[["STUCK_JOBS"]])]


class PauseTypesRequest(RequestModel):
    duration: Span | None = Field(default=None, description="How long; null: until they are resumed.")
    types: Types = Field(default_factory=lambda: list(Type))
    reason: Note = ""


class ResumeTypesRequest(RequestModel):
    types: Types = Field(default_factory=lambda: list(Type))


class PausedTypes(ResponseModel):
    paused: list[Type]
    duration: str | None


class ResumedTypes(ResponseModel):
    resumed: list[Type] = Field(description="The types that were paused before.")


class StuckView(ResponseModel):
    id: str
    task: str
    queue: str
    attempt: int
    max_attempts: int
    worker: str
    epoch: int
    longer_than: str = Field(description="How long an attempt of its task may run.", examples=["30m"])


class StuckJobs(ResponseModel):
    jobs: list[StuckView]


class StuckQuery(RequestModel):
    longer_than: Span | None = Field(
        default=None, description="Used instead of the limit of each task.", examples=["30m"]
    )
    tasks: list[Word] = Field(
        default_factory=list, max_length=50, description="Only jobs of these tasks. Default: all."
    )
    owner: Word | None = Field(default=None, description="Only jobs of this owner.")
    ids: list[Word] = Field(
        default_factory=list, max_length=BATCH, description="Only these jobs. Default: all."
    )
    limit: Annotated[int, Field(ge=1, le=BATCH), Number] = 100


class ReclaimedJobs(ResponseModel):
    found: int
    processed: int = Field(description="Taken from their workers: retried, or dead letters.")


class WorkersStatus(ResponseModel):
    workers: list[WorkerView]
    count: int
    busy: int = Field(description="Workers that run jobs.")
    leases: int
    paused: list[str] = Field(description="Maintenance tasks that are paused.")


routes = router("admin")


@routes.get("/admin/workers/status", response_model=WorkersStatus, **allows(Action.LOOK))
async def get_workers_status(request: Request) -> Response:
    """Get the status of the workers and of pauses."""
    app = app_of(request)
    workers, holds = await app.queues.workers(), await app.queues.holds()
    paused = sorted({hold.scope.name for hold in holds if hold.scope.kind is ScopeKind.MAINTENANCE})
    return answer(
        {
            "workers": [worker_view(one) for one in workers],
            "count": len(workers),
            "busy": sum(one.leases > 0 for one in workers),
            "leases": sum(one.leases for one in workers),
            "paused": paused,
        }
    )


@routes.get("/admin/jobs/stuck", response_model=StuckJobs, **allows(Action.LOOK))
async def list_stuck_jobs(
    request: Request,
    longer_than: Annotated[Span | None, Query()] = None,
    task: Annotated[Word | None, Query()] = None,
    owner: Annotated[Word | None, Query()] = None,
    limit: LimitQuery = 100,
) -> Response:
    """List attempts that run too long while their worker is alive."""
    tasks, most = [] if task is None else [task], min(capped(limit), BATCH)
    return await _list(request, StuckQuery(longer_than=longer_than, tasks=tasks, owner=owner, limit=most))


@routes.post("/admin/jobs/stuck", response_model=StuckJobs, **allows(Action.LOOK))
async def search_stuck_jobs(request: Request, body: StuckQuery | None = None) -> Response:
    """List stuck attempts with a filter in the body."""
    return await _list(request, body or StuckQuery())


@routes.post("/admin/jobs/process-stuck", response_model=ReclaimedJobs, **allows(Action.OPERATE))
async def process_stuck_jobs(request: Request, body: StuckQuery | None = None) -> Response:
    """Reclaim stuck jobs from their workers."""
    found = await _find(request, body or StuckQuery())
    done = await app_of(request).jobs.reclaim(found, by=caller_of(request).name)
    return answer({"found": len(found), "processed": done})


async def _list(request: Request, query: StuckQuery) -> Response:
    return answer({"jobs": [stuck_view(one) for one in await _find(request, query)]})


async def _find(request: Request, query: StuckQuery) -> list[StuckJob]:
    return await app_of(request).jobs.stuck(
        longer_than=query.longer_than,
        task=query.tasks or None,
        owner=query.owner,
        ids=query.ids or None,
        limit=query.limit,
    )


@routes.post("/admin/retry-scheduler/pause", response_model=PausedTypes, **allows(Action.OPERATE))
async def pause_retry_scheduler(request: Request, body: PauseTypesRequest | None = None) -> Response:
    """Pause the maintenance that moves jobs."""
    pause, by = body or PauseTypesRequest(), caller_of(request).name
    for one in pause.types:
        await app_of(request).queues.pause(
            one.maintenance_task,
            kind=ScopeKind.MAINTENANCE,
            duration=pause.duration,
            reason=pause.reason,
            by=by,
        )
    return answer({"paused": pause.types, "duration": pause.duration})


@routes.post("/admin/retry-scheduler/resume", response_model=ResumedTypes, **allows(Action.OPERATE))
async def resume_retry_scheduler(request: Request, body: ResumeTypesRequest | None = None) -> Response:
    """Resume the maintenance that moves jobs."""
    types, by = (body or ResumeTypesRequest()).types, caller_of(request).name
    resumed = [
        one
        for one in types
        if await app_of(request).queues.resume(one.maintenance_task, kind=ScopeKind.MAINTENANCE, by=by)
    ]
    return answer({"resumed": resumed})
