"""A request to the API that its sender has named, so that it may be sent again (`Idempotency-Key`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from holdfast.jobs.job import Enqueued, JobId


class NamedRequest(NamedTuple):
    """A request, by its name and its content."""

    scope: str  #: whose name it is: route and owner
    name: str
    fingerprint: bytes  #: of its content


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """An earlier request of the same name has enqueued jobs. This is its content, and what it was answered."""

    fingerprint: bytes
    answers: tuple[Enqueued, ...]

    @property
    def ids(self) -> tuple[JobId, ...]:
        return tuple(answer.id for answer in self.answers)


class StartedRequest(NamedTuple):
    """The right to carry out a request."""

    #: Names what is done for the request. It stays the same when another process takes over from one that was lost.
    token: str
    ticket: str  #: the right to answer it


class EarlierRequest(NamedTuple):
    """A request of this name was begun before, for this content. *answer* is None while it is carried out."""

    fingerprint: bytes
    answer: str | None
