"""How long finished jobs, their results and their events are kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from holdfast.values.duration import Duration, optional


@dataclass(frozen=True, slots=True, init=False)
class Retention:
    """How long results, jobs and events are kept after a job has finished; None keeps them forever."""

    results: timedelta | None
    jobs: timedelta | None
    events: timedelta | None

    def __init__(
        self, results: Duration | None = None, jobs: Duration | None = None, events: Duration | None = None
    ) -> None:
        for name, kept in (("results", results), ("jobs", jobs), ("events", events)):
            object.__setattr__(self, name, optional(kept))
