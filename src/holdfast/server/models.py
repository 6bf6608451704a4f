"""The bodies of requests and answers. Requests are checked by them; of answers they are the documentation, and a test
compares them with what is really sent."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

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
)

MOST_JOBS = 10_000
_ID = "019a8f6e-2a53-7cc1-9d0e-5f1c7a0b3d42"


# -- jobs -------------------------------------------------------------------------------------------------------------
class JobRequest(RequestModel):
    """A call of a task, to be done later."""

    task: Word = Field(
        description="Which task; one that this app declares, and opens to keys of owners by `http=True` if yours is one.",
        examples=["convert"],
    )
    args: dict[str, Any] = Field(
        default_factory=dict,
        description="Its arguments by name, checked as the task declares them.",
        examples=[{"pdf": "a.pdf", "mapping": "jats"}],
    )
    owner: Word | None = Field(
        default=None, description="Whose job it is. A key of an owner may leave it out."
    )
    priority: Annotated[int, Field(ge=-1000, le=1000), Number] | Literal["low", "normal", "high"] = Field(
        default=0, description="A number, or the name of a level: low, normal, high.", examples=["high"]
    )
    queue: Word | None = Field(
        default=None, description="Instead of the task's own. A key of an owner names only declared ones."
    )
    shard: Word | None = Field(default=None, description="Of the service it calls. Not for keys of owners.")
    run_at: Moment | None = Field(default=None, description="Not before this moment.")
    delay: Span | None = Field(default=None, description="Not before this much time has passed.")
    deadline: Moment | Span | None = Field(
        default=None, description="By when it must be done: a moment or a duration.", examples=["20m"]
    )
    start_within: Span | None = Field(default=None, description="How late it may start and still be of use.")
    dedupe_key: Word | None = Field(default=None, description="A twin of this key stands in for the new job.")
    dedupe_for: Span | None = Field(default=None, description="How long a complete twin does.")
    key: Word | None = Field(default=None, description="Jobs of one key run one at a time.")
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
    """Before any of them is looked at."""
    if isinstance(jobs, list) and len(jobs) > MOST_JOBS:
        raise ValueError(f"at most {MOST_JOBS:,} jobs at once; send them in pieces")
    return jobs


class JobsRequest(RequestModel):
    """Many calls: all are stored, or none."""

    jobs: Annotated[
        list[JobRequest], Field(min_length=1, max_length=MOST_JOBS), BeforeValidator(_not_too_many)
    ]


class EnqueuedView(ResponseModel):
    id: str = Field(examples=[_ID])
    state: str = Field(examples=["queued"])
    duplicate: bool = Field(description="A twin with the same dedupe key stands in for this call.")


class EnqueuedPage(ResponseModel):
    jobs: list[EnqueuedView]


class JobView(ResponseModel):
    """A job as everyone sees it."""

    id: str = Field(examples=[_ID])
    task: str
    queue: str
    owner: str | None
    priority: int
    state: str = Field(examples=["queued"])
    generation: int
    epoch: int
    attempt: int
    max_attempts: int
    crashes: int
    run_at: datetime
    created_at: datetime
    queued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    failed_at: datetime | None
    last_attempt_at: datetime | None
    updated_at: datetime
    deadline_at: datetime | None
    expired_at: datetime | None
    leased_by: str | None
    lease_expires_at: datetime | None
    error_code: str | None
    error_message: str | None
    last_failure: dict[str, Any] | None
    retry_type: str
    manual_retry_count: int
    is_retryable: bool
    result: Any = Field(description="Only of one job, not in lists; large ones are at /result.")
    artifact: str | None
    tags: list[str]
    progress: dict[str, Any] | None
    key: str | None
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
    traceback: str | None = Field(
        description="Where it was raised: files and lines, without source. Not shown to keys of owners."
    )
    logs: list[str]


class Attempts(ResponseModel):
    attempts: list[AttemptView]
    next: str | None = Field(description="The cursor to the next page; null: this was the last.")


class LateResultView(ResponseModel):
    epoch: int
    at: datetime
    reason: str
    outcome: str
    result: Any
    is_late: bool


class LateResults(ResponseModel):
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
        description="Call it with these instead, all of them by name. Its steps are forgotten, unless from_step says which.",
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
class DeadLetterView(ResponseModel):
    id: str = Field(description="The job's own id.")
    task: str
    queue: str
    owner: str | None
    code: str
    message: str
    detail: str | None = Field(description="For engineers; not shown to keys of owners.")
    fingerprint: str
    attempts: int
    at: datetime
    traceback: str | None = Field(
        description="Of its last attempt, where one letter is asked for. Not shown to keys of owners."
    )
    args: Any = Field(
        default=None, description="Only with `include=args`; values of secret names are hidden."
    )


class DeadLetterPage(ResponseModel):
    dead_letters: list[DeadLetterView]
    next: str | None


class DeadLetterGroupView(ResponseModel):
    fingerprint: str
    task: str
    code: str
    message: str
    count: int
    first_at: datetime
    last_at: datetime
    sample: str


class DeadLetterGroups(ResponseModel):
    groups: list[DeadLetterGroupView]


class RedriveRequest(RequestModel):
    to_queue: Word | None = Field(
        default=None, description="Another queue than its own. A key of an owner names only declared ones."
    )


class DiscardRequest(RequestModel):
    reason: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(printable)]
