"""Dispatch through a broker: due jobs are handed out by Redis or RabbitMQ, so that workers need not ask the store for them.

```text
  enqueue, retry ──after the commit──▶ ┌────────┐            ┌────────┐ hints ┌────────┐  claim_jobs   ┌───────┐
                                       │ offer  │──entries──▶│ broker │──────▶│ worker │──────────────▶│ store │
  events ──the duty `dispatch`───────▶ └────────┘            └────────┘       └────────┘  by id and    └───────┘
                                                                                          generation
```

The store stays the truth. A broker holds hints: the id of a job and its generation. Whatever is wrong with a hint (it came
twice, it is old, its job was cancelled or is gone), the claim by it does nothing. A hint that was lost costs time, never a
job: workers look at the store now and then, and the duty offers again what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple, Protocol

from holdfast.domain.job import Claimed, JobId, Lane, Session
from holdfast.errors import HoldfastError

_ID = re.compile("-".join(f"[0-9a-f]{{{n}}}" for n in (8, 4, 4, 4, 12)), re.ASCII)
_MOST_GENERATIONS = 32_767


class BrokerUnavailable(HoldfastError):
    """The broker cannot be reached, or cannot do it now. Nobody has to be told but the log."""


class DispatchHint(NamedTuple):
    """Somebody was told that this job is due in this generation."""

    job_id: JobId
    generation: int


class DispatchEntry(NamedTuple):
    """A job that waits, as it is offered. Times are durations: no two clocks are compared."""

    job_id: JobId
    generation: int
    lane: Lane
    priority: int  #: higher runs first
    delay: timedelta  #: until it is due; 0: it is


class Depth(NamedTuple):
    """How many jobs of a lane wait in the store."""

    due: int
    later: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many hints a broker holds. It need not be exact."""

    ready: Mapping[Lane, int] = field(default_factory=dict)
    later: int = 0
    built: bool = True  #: False: it was emptied since `built` was called, or that was never done


class Dispatch(Protocol):
    """A broker. All of it may be called at any time, fails with `BrokerUnavailable` and within seconds, and may be sent again."""

    delays: bool  #: it keeps what is due later; otherwise such an entry is passed by when it is offered
    repeats: bool  #: what is offered twice is there once

    async def offer(self, entries: Sequence[DispatchEntry]) -> None:
        """Have these handed out when they are due, within a lane by priority (where the broker can), then in their order.

        One that is there already in this generation keeps its place, but for its time: due later or now, as is said last.
        An older generation never replaces a newer one.
        """

    async def cancel(self, ids: Collection[JobId]) -> set[JobId]:
        """Take these back, as far as that can be done without a search; those that were there."""

    async def take(self, lanes: Sequence[Lane], most: int) -> list[DispatchHint]:
        """Up to *most* hints of jobs that are due, the first lanes first. Nobody else is given the same ones."""

    async def took(self, hints: Sequence[DispatchHint]) -> None:
        """The store has been asked for these, and has answered."""

    async def put_back(self, hints: Sequence[DispatchHint]) -> None:
        """The store could not be asked for these: somebody else may, if the broker can give them again."""

    async def wait(self, lanes: Sequence[Lane], timeout: float) -> None:
        """Return early when there may be something to take. A hint only."""

    async def sizes(self, lanes: Collection[Lane]) -> Sizes: ...

    async def built(self) -> None:
        """Everything that waits has been offered: remember that for as long as nobody empties the broker."""

    async def forget(self, lanes: Collection[Lane]) -> None:
        """Drop every hint of these lanes, and whatever is due later."""

    async def ping(self) -> None:
        """Nothing, if it is there."""

    async def close(self) -> None: ...


class DispatchStore(Protocol):
    """What dispatch needs of a store. Jobs with a key are no part of it: whose turn it is only the store can say."""

    async def claim_jobs(self, session: Session, hints: Collection[DispatchHint]) -> list[Claimed]:
        """Queued → processing for those of these jobs that are due in this generation. Nothing for a session that has ended.

        Passed by: what does not wait in that generation, is not due, has a key, or is in a lane that is held.
        """

    async def waiting(self, ids: Collection[JobId]) -> list[DispatchEntry]:
        """Those of these jobs that wait, due or not."""

    async def all_waiting(self, *, after: JobId | None, limit: int) -> list[DispatchEntry]:
        """Every job that waits, in the order of their ids, behind *after*. A page that is not full is the last one."""

    async def due_soon(self, within: timedelta, limit: int) -> list[DispatchEntry]:
        """Those that are not due yet and will be *within* this time, soonest first."""

    async def count_waiting(self) -> dict[Lane, Depth]:
        """How many wait in each lane. Counts them one by one."""


def hint_of(job_id: str, generation: str) -> DispatchHint | None:
    """What a broker gave, if it can be one of ours: anybody may have written there."""
    if _ID.fullmatch(job_id) is None or not generation.isascii() or not generation.isdecimal():
        return None
    number = int(generation[:9])
    return DispatchHint(JobId(job_id), number) if 0 < number <= _MOST_GENERATIONS else None
