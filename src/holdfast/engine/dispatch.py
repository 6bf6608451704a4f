"""Dispatch through a broker: Redis or RabbitMQ hands out due jobs, so that workers need not poll the store.

```text
  enqueue, retry ──after the commit──▶ ┌────────┐            ┌────────┐ hints ┌────────┐  claim_jobs   ┌───────┐
                                       │ offer  │──entries──▶│ broker │──────▶│ worker │──────────────▶│ store │
  events ──maintenance `dispatch`────▶ └────────┘            └────────┘       └────────┘  by id and    └───────┘
                                                                                          generation
```

The store decides. A broker holds hints: the id of a job and its generation. When a hint is repeated or old, or its job was
cancelled or is gone, the claim by it does nothing. A lost hint costs time, never a job: workers poll the store now and then, and
maintenance offers again what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple, Protocol

from holdfast.errors import HoldfastError
from holdfast.jobs.job import Claimed, JobId, Lane, Session

_ID = re.compile("-".join(f"[0-9a-f]{{{n}}}" for n in (8, 4, 4, 4, 12)), re.ASCII)
_MOST_GENERATIONS = 32_767


class BrokerUnavailable(HoldfastError):
    """The broker cannot be reached, or cannot answer now. It is logged and never raised to users."""


class DispatchHint(NamedTuple):
    """A broker says that this job is due in this generation."""

    job_id: JobId
    generation: int


class DispatchEntry(NamedTuple):
    """A queued job as it is offered to a broker. Times are durations, so that no two clocks are compared."""

    job_id: JobId
    generation: int
    lane: Lane
    priority: int  #: higher runs first
    delay: timedelta  #: until it is due; 0 when it is due


class Depth(NamedTuple):
    """How many jobs of a lane are queued in the store."""

    due: int
    later: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many hints a broker holds, roughly."""

    ready: Mapping[Lane, int] = field(default_factory=dict)
    later: int = 0
    built: bool = (
        True  #: False when the broker was emptied since `built` was called, or `built` was never called
    )


class Dispatch(Protocol):
    """A broker. Every method may be called at any time and repeated, and fails with `BrokerUnavailable` within seconds."""

    delays: bool  #: whether it keeps entries that are due later; otherwise it ignores them
    repeats: bool  #: whether an entry that is offered twice is kept once

    async def offer(self, entries: Sequence[DispatchEntry]) -> None:
        """Hand these entries out when they are due: within a lane by priority, where the broker can, then in their order.

        An entry that the broker has in this generation keeps its place; its time becomes the one offered last. An older
        generation never replaces a newer one.
        """

    async def cancel(self, ids: Collection[JobId]) -> set[JobId]:
        """Remove these jobs, as far as that needs no search, and return those that were removed."""

    async def take(self, lanes: Sequence[Lane], most: int) -> list[DispatchHint]:
        """Return up to *most* hints of due jobs, the first lanes first. No other caller gets the same hints."""

    async def took(self, hints: Sequence[DispatchHint]) -> None:
        """Confirm hints: the store has answered a claim by them."""

    async def put_back(self, hints: Sequence[DispatchHint]) -> None:
        """Return hints to the broker, if it can take them: the store could not be reached."""

    async def wait(self, lanes: Sequence[Lane], timeout: float) -> None:
        """Return early when there may be something to take. A hint only."""

    async def sizes(self, lanes: Collection[Lane]) -> Sizes:
        """Return roughly how many hints the broker holds of these lanes."""

    async def built(self) -> None:
        """Remember that every queued job has been offered, until the broker is emptied."""

    async def forget(self, lanes: Collection[Lane]) -> None:
        """Drop every hint of these lanes, and every entry that is due later."""

    async def ping(self) -> None:
        """Raise `BrokerUnavailable` when the broker cannot be reached."""

    async def close(self) -> None:
        """Close the connections to the broker."""


class DispatchStore(Protocol):
    """What dispatch needs of a store. It leaves out jobs with a key, because only the store knows whose turn it is."""

    async def claim_jobs(self, session: Session, hints: Collection[DispatchHint]) -> list[Claimed]:
        """Claim those of these jobs that are due in this generation. Return nothing for a session that has ended.

        Jobs that are not queued in that generation, are not due, have a key, or are in a lane that is held are left out.
        """

    async def waiting(self, ids: Collection[JobId]) -> list[DispatchEntry]:
        """Return those of these jobs that are queued, due or not."""

    async def all_waiting(self, *, after: JobId | None, limit: int) -> list[DispatchEntry]:
        """Return queued jobs by id, from behind *after*. A page that is not full is the last one."""

    async def due_soon(self, within: timedelta, limit: int) -> list[DispatchEntry]:
        """Return jobs that will be due *within* this time and are not due yet, soonest first."""

    async def count_waiting(self) -> dict[Lane, Depth]:
        """Return how many jobs are queued in each lane. Counts them one by one."""


def hint_of(job_id: str, generation: str) -> DispatchHint | None:
    """Return a hint as a broker gave it; None when it is not one of ours, because others may write there."""
    if _ID.fullmatch(job_id) is None or not generation.isascii() or not generation.isdecimal():
        return None
    number = int(generation[:9])
    return DispatchHint(JobId(job_id), number) if 0 < number <= _MOST_GENERATIONS else None
