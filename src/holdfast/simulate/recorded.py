"""Past outages as scenarios, reconstructed from the events of breakers.

When a breaker opened by itself, its service was down. When it closed, the service had been up again for at
most a cooldown. The number of jobs and the kind of failure are not recorded: the scenario is a hanging
service, as in `OUTAGE`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from holdfast.jobs.job import Event
from holdfast.jobs.moves import Kind
from holdfast.simulate.scenarios import OUTAGE, Scenario

#: A longer outage is cut to this: an hour shows all that matters.
LONGEST = timedelta(hours=1)
#: An outage is observed for twice its duration, plus this many seconds.
AFTERWARDS = 540.0


@dataclass(frozen=True, slots=True)
class Outage:
    """A recorded outage of a dependency."""

    dependency: str
    began: datetime
    ended: datetime

    def scenario(self) -> Scenario:
        """Return a scenario in which the service hangs as long as in this outage, at most `LONGEST`."""
        span = min(self.ended - self.began, LONGEST).total_seconds()
        down = (self.ended - self.began).total_seconds()
        cut = f", of which {span:.0f} s are played" if span < down else ""
        return replace(
            OUTAGE,
            name=f"{self.dependency} {self.began:%Y-%m-%dT%H:%M:%S}",
            about=f"on record: {self.dependency} was down for {down:.0f} s{cut}",
            ends=OUTAGE.begins + span,
            seconds=OUTAGE.begins + 3 * span + AFTERWARDS,
        )


def outages(events: Iterable[Event]) -> list[Outage]:
    """Return the outages from opening to closing, oldest first.

    A breaker that was opened by hand, or that has not closed yet, is not an outage.
    """
    began: dict[str, datetime] = {}
    found: list[Outage] = []
    for event in events:
        name = str(event.meta.get("dependency", ""))
        if event.kind == Kind.breaker_opened.name and "by" not in event.meta:
            began.setdefault(name, event.at)
        elif event.kind == Kind.breaker_closed.name and name in began:
            found.append(Outage(name, began.pop(name), event.at))
    return found
