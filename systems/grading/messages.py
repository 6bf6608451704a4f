"""The messages: requests to workers, their callbacks, and dead letters. All are validated JSON.

A *request id* names one generation of one submission: `<submission id>.<generation>`. Sending a submission
again by hand creates a new generation, so that results still in progress for the old one change nothing.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from holdfast.celery import TaskMessage, encode_task
from holdfast.external import ExternalTask

#: The name of the worker's task.
TASK = "grading.grade"

Skill = Literal["writing", "speaking"]
Status = Literal["processing", "completed", "error", "failed"]
#: Larger messages are refused, in bytes.
LARGEST_MESSAGE = 1024 * 1024
LONGEST_TEXT = 50_000

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_REQUEST = re.compile(rf"({_UUID})\.([1-9][0-9]{{0,8}})")

SubmissionId = Annotated[str, msgspec.Meta(pattern=f"^{_UUID}$")]
RequestId = Annotated[str, msgspec.Meta(pattern=rf"^{_UUID}\.[1-9][0-9]{{0,8}}$")]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Line = Annotated[str, msgspec.Meta(max_length=2_000)]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
Band = Annotated[float, msgspec.Meta(ge=0, le=9, multiple_of=0.5)]


class Audio(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A recording: the name of its file in the shared folder, with its digest and size."""

    name: Annotated[str, msgspec.Meta(pattern=rf"^{_UUID}\.wav$")]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    size: Annotated[int, msgspec.Meta(ge=0)]


def check_parts(skill: str, text: str | None, audio: object) -> None:
    """Raise `ValueError` unless a writing submission has only a text, and a speaking one only audio."""
    if (text is None) == (audio is None) or (skill == "speaking") != (audio is not None):
        raise ValueError("writing needs a text, speaking needs audio, and neither takes both")


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """A message of the queue `grading.request`."""

    request_id: RequestId
    submission_id: SubmissionId
    skill: Skill
    text: Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT)] | None = None
    audio: Audio | None = None
    deadline_at: Moment | None = None  #: no work on it starts after this

    def __post_init__(self) -> None:
        if parse_request_id(self.request_id)[0] != self.submission_id:
            raise ValueError("requestId and submissionId name different submissions")
        check_parts(self.skill, self.text, self.audio)


class Grade(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The grade of a submission: a band for each criterion, their mean, and feedback for the learner."""

    overall: Band
    bands: Annotated[dict[Word, Band], msgspec.Meta(min_length=1, max_length=20)]
    feedback: Annotated[str, msgspec.Meta(max_length=20_000)]
    transcript: Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT)] | None = None


class Trouble(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """The reason why there is no grade yet, or at all.

    *retry_in_ms* is set if the request will be retried.
    """

    code: Annotated[str, msgspec.Meta(pattern="^[A-Z][A-Z0-9_]{0,63}$")]
    message: Line
    retry_in_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None


class Callback(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """A message of the queue `grading.callback`.

    *completed* and *failed* end a request; the others report progress.
    """

    request_id: RequestId
    submission_id: SubmissionId
    status: Status
    attempt: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
    worker: Word
    timestamp: Word
    result: Grade | None = None
    error: Trouble | None = None

    def __post_init__(self) -> None:
        if parse_request_id(self.request_id)[0] != self.submission_id:
            raise ValueError("requestId and submissionId name different submissions")
        if (self.result is not None) != (self.status == "completed"):
            raise ValueError("a result goes with the status completed only")
        if (self.error is not None) != (self.status in ("error", "failed")):
            raise ValueError("an error goes with the status error or failed only")


class DeadLetter(msgspec.Struct, frozen=True, rename="camel"):
    """A message of the queue `grading.dlq` (G4). Ids are empty if the original message did not have them."""

    request_id: str
    submission_id: str
    failure_reason: str
    attempts_made: int
    last_error: str
    timestamp: str
    request: str = ""  #: the original message, cut to a readable length; never decoded again


def encode_request(external_task: ExternalTask) -> TaskMessage:
    """Return the request for a submission as a Celery message. Missing values are left out."""
    request = {"requestId": external_task.id, "submissionId": external_task.job_id}
    request |= {name: value for name, value in external_task.arguments.items() if value is not None}
    if external_task.deadline is not None:
        request["deadlineAt"] = external_task.deadline.isoformat()
    return encode_task(TASK, kwargs={"request": request}, task_id=external_task.id)


def request_id(submission_id: str, generation: int) -> str:
    """Return the request id of a generation of a submission."""
    return f"{submission_id}.{generation}"


def parse_request_id(request: str) -> tuple[str, int]:
    """Return the submission id and the generation in a request id. Raise `ValueError` if it is not valid."""
    match = _REQUEST.fullmatch(request)
    if match is None:
        raise ValueError("this is not a request id")
    return match[1], int(match[2])
