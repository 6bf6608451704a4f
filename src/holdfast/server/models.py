"""The bodies of requests and responses. Requests are validated by these models. Responses are only documented by them; a test
compares the two."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from holdfast.jobs.job import DeadLetter, DeadLetterGroup, JobRow
from holdfast.server.types import (
    Moment,
    Note,
    Number,
    RequestModel,
    ResponseModel,
    Span,
    Word,
    not_both,
    printable,
    shows,
)

MOST_JOBS = 10_000
_ID = "019a8f6e-2a53-7cc1-9d0e-5f1c7a0b3d42"


# -- jobs -------------------------------------------------------------------------------------------------------------
class JobRequest(RequestModel):
    """A call of a task."""

    task: Word = Field(
        description="The name of a task of this app. Keys of owners may call tasks that are declared with `http=True`.",
        examples=["convert"],
    )
    args: dict[str, Any] = Field(
        default_factory=dict,
        description="The arguments by name, checked against the task's signature.",
        examples=[{"pdf": "a.pdf", "mapping": "jats"}],
    )
    owner: Word | None = Field(
        default=None, description="The owner of the job. A key of an owner may leave it out."
    )
    priority: Annotated[int, Field(ge=-1000, le=1000), Number] | Literal["low", "normal", "high"] = Field(
        default=0, description="A number, or the name of a level: low, normal, high.", examples=["high"]
    )
    queue: Word | None = Field(
        default=None,
        description="Another queue than the task's own. Keys of owners may name declared queues only.",
    )
    shard: Word | None = Field(
        default=None, description="The shard of the dependency that the task calls. Not for keys of owners."
    )
    run_at: Moment | None = Field(default=None, description="Start not before this time.")
    delay: Span | None = Field(default=None, description="Start not before this time has passed.")
    deadline: Moment | Span | None = Field(
        default=None, description="By when it must have ended: a time or a duration.", examples=["20m"]
    )
    start_within: Span | None = Field(
        default=None, description="Fail the job if it has not started within this time."
    )
    dedupe_key: Word | None = Field(
        default=None, description="A live job with this key stands in for the new one."
    )
    dedupe_for: Span | None = Field(
        default=None, description="How long a complete job stands in for new ones."
    )
    key: Word | None = Field(default=None, description="Jobs with the same key run one at a time.")
    tags: list[Word] = Field(default_factory=list, max_length=50)
    max_attempts: Annotated[int, Field(ge=1, le=1000), Number] | None = Field(None)

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "task": "convert",
                "args": {"pdf": "a.pdf", "mapping": "jats"},
                "owner": "alice",
                "deadline": "20m",
                "dedupe_key": "a.pdf",
            },
            **not_both("run_at", "delay"),
        }
    )


def _not_too_many(jobs: object) -> object:
    """Refuse the list before any of its items is validated."""
    if isinstance(jobs, list) and len(jobs) > MOST_JOBS:
        raise ValueError(f"at most {MOST_JOBS:,} jobs at once; send them in pieces")
    return jobs


class JobsRequest(RequestModel):
    """Many calls of tasks. All are stored, or none."""

    jobs: Annotated[
        list[JobRequest], Field(min_length=1, max_length=MOST_JOBS), BeforeValidator(_not_too_many)
    ]


class EnqueuedView(ResponseModel):
    id: str = Field(examples=[_ID])
    state: str = Field(examples=["queued"])
    duplicate: bool = Field(description="A job with the same dedupe key stands in for this call.")


class EnqueuedPage(ResponseModel):
    jobs: list[EnqueuedView]


@shows(JobRow, without=("payload",))
class JobView(ResponseModel):
    """A job as everyone sees it."""

    id: str = Field(examples=[_ID])
    state: str = Field(examples=["queued"])
    failed_at: datetime | None
    is_retryable: bool
    result: Any = Field(description="Not in lists. Large results are at /result.")
    args: Any = Field(
        default=None, description="Only with `include=args`; values of secret names are hidden."
    )


class JobPage(ResponseModel):
    jobs: list[JobView]
    next: str | None = Field(description="The cursor to the next page; null: this was the last.")


class EventView(ResponseModel):
    id: str  #: a whole number, too large for the numbers of some languages
    at: datetime
    kind: str
    job_id: str
    epoch: int
    attempt: int
    meta: dict[str, Any]


class EventPage(ResponseModel):
    events: list[EventView]
    next: str | None


class AttemptView(ResponseModel):
    epoch: int
    generation: int
    attempt: int
    worker: str | None
    started_at: datetime
    ended_at: datetime | None
    duration_ms: float | None
    outcome: str | None
    error_code: str | None
    error_message: str | None
    error_detail: str | None = Field(description="For engineers; not shown to keys of owners.")
    fingerprint: str | None
    gateway_status: int | None
    cost: float | None = Field(
        description="What it cost; null while it runs, and if its worker has not reported it."
    )
    traceback: str | None = Field(
        description="The files and lines where it was raised, without source. Not shown to keys of owners."
    )
    logs: list[str]


class AttemptList(ResponseModel):
    attempts: list[AttemptView]
    next: str | None = Field(description="The cursor to the next page; null: this was the last.")


class LateResultView(ResponseModel):
    epoch: int
    at: datetime
    reason: str
    outcome: str
    result: Any
    is_late: bool


class LateResultList(ResponseModel):
    late_results: list[LateResultView]
    next: str | None = Field(description="The cursor to the next page; null: this was the last.")


class ResultView(ResponseModel):
    id: str
    state: str
    result: Any


class ExplanationView(ResponseModel):
    sentence: str = Field(examples=["It is due at 09:00:00 UTC (in 30s)."])
    reason: str
    facts: dict[str, Any]
    expected_at: datetime | None


class RetryRequest(RequestModel):
    from_step: Word | None = Field(
        default=None, description="Forget this step and every one recorded after it."
    )
    args: dict[str, Any] | None = Field(
        default=None,
        description="Call the task with these arguments instead, all of them by name. All steps are forgotten unless `from_step` is given.",
    )


class Retried(ResponseModel):
    id: str
    state: str
    queue_position: int


class ReasonRequest(RequestModel):
    reason: Note = ""


class MovedJob(ResponseModel):
    id: str
    state: str


# -- dead letters -----------------------------------------------------------------------------------------------------
@shows(DeadLetter, without=("payload",))
class DeadLetterView(ResponseModel):
    id: str = Field(description="The id of the job.")
    detail: str | None = Field(description="For engineers; not shown to keys of owners.")
    traceback: str | None = Field(
        description="The traceback of the last attempt; not in lists, and not shown to keys of owners."
    )
    args: Any = Field(
        default=None, description="Only with `include=args`; values of secret names are hidden."
    )


class DeadLetterPage(ResponseModel):
    dead_letters: list[DeadLetterView]
    next: str | None


@shows(DeadLetterGroup)
class DeadLetterGroupView(ResponseModel):
    pass


class DeadLetterGroupList(ResponseModel):
    groups: list[DeadLetterGroupView]


class RedriveRequest(RequestModel):
    to_queue: Word | None = Field(
        default=None,
        description="Another queue than the job's own. Keys of owners may name declared queues only.",
    )


class DiscardRequest(RequestModel):
    reason: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(printable)]
