"""What travels: the request to a worker, its callbacks, and the record of what was given up. All JSON, all checked.

A *request id* names one generation of one submission: `<submission id>.<generation>`. Sending a submission again by hand
makes a new one, so that what is still under way for the old one can change nothing.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from holdfast import ExternalTask
from holdfast.celery import TaskMessage, encode_task

#: The name of the worker's task.
TASK = "grading.grade"

Skill = Literal["writing", "speaking"]
Status = Literal["processing", "completed", "error", "failed"]
#: Larger messages are nobody's of ours.
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
    """Where a recording is: the name of a file in the shared folder, and what it must be."""

    name: Annotated[str, msgspec.Meta(pattern=rf"^{_UUID}\.wav$")]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    size: Annotated[int, msgspec.Meta(ge=0)]


def check_parts(skill: str, text: str | None, audio: object) -> None:
    """`ValueError` for a submission that has neither, both, or the wrong one of the two."""
    if (text is None) == (audio is None) or (skill == "speaking") != (audio is not None):
        raise ValueError("writing has a text, speaking has audio, and neither has both")


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """`grading.request`."""

    request_id: RequestId
    submission_id: SubmissionId
    skill: Skill
    text: Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT)] | None = None
    audio: Audio | None = None
    deadline_at: Moment | None = None  #: nothing is begun for it after this

    def __post_init__(self) -> None:
        if split(self.request_id)[0] != self.submission_id:
            raise ValueError("requestId and submissionId speak of two submissions")
        check_parts(self.skill, self.text, self.audio)


class Grade(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What a submission is worth: a band for each criterion, their mean, and words for the learner."""

    overall: Band
    bands: Annotated[dict[Word, Band], msgspec.Meta(min_length=1, max_length=20)]
    feedback: Annotated[str, msgspec.Meta(max_length=20_000)]
    transcript: Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT)] | None = None


class Trouble(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """Why there is no grade, or not yet. *retry_in_ms*: when it is tried again, where it is."""

    code: Annotated[str, msgspec.Meta(pattern="^[A-Z][A-Z0-9_]{0,63}$")]
    message: Line
    retry_in_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None


class Callback(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """`grading.callback`: *processing* and *error* are news; *completed* and *failed* are ends."""

    request_id: RequestId
    submission_id: SubmissionId
    status: Status
    attempt: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
    worker: Word
    timestamp: Word
    result: Grade | None = None
    error: Trouble | None = None

    def __post_init__(self) -> None:
        if split(self.request_id)[0] != self.submission_id:
            raise ValueError("requestId and submissionId speak of two submissions")
        if (self.result is not None) != (self.status == "completed"):
            raise ValueError("a result comes with completed, and with nothing else")
        if (self.error is not None) != (self.status in ("error", "failed")):
            raise ValueError("an error comes with error and failed, and with nothing else")


class Buried(msgspec.Struct, frozen=True, rename="camel"):
    """`grading.dlq` (G4). Ids are empty where the message did not tell them."""

    request_id: str
    submission_id: str
    failure_reason: str
    attempts_made: int
    last_error: str
    timestamp: str
    request: str = ""  #: the message itself as it came, cut to a readable length; never decoded again


def ask(external_task: ExternalTask) -> TaskMessage:
    """The request for one submission, as Celery reads it. What it does not have is not told."""
    request = {"requestId": external_task.id, "submissionId": external_task.job_id}
    request |= {name: value for name, value in external_task.arguments.items() if value is not None}
    if external_task.deadline is not None:
        request["deadlineAt"] = external_task.deadline.isoformat()
    return encode_task(TASK, kwargs={"request": request}, task_id=external_task.id)


def request_id(submission_id: str, generation: int) -> str:
    return f"{submission_id}.{generation}"


def split(request: str) -> tuple[str, int]:
    """The submission and the generation that a request id names; `ValueError` when it is none."""
    found = _REQUEST.fullmatch(request)
    if found is None:
        raise ValueError("this is not a request id")
    return found[1], int(found[2])
