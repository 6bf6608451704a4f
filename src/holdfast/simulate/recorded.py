"""Outages that have happened, as troubles to be played: what the events of breakers tell of them.

When a breaker opened by itself, its service was down; when it closed, it was up again, for a cooldown at the most. How many jobs
came meanwhile and how the service failed is not on record: it hangs, as in the known outage.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from holdfast.domain.job import Event
from holdfast.domain.moves import Kind
from holdfast.simulate.scenarios import OUTAGE, Scenario

#: A longer outage is cut to this: what it teaches, it teaches in an hour.
LONGEST = timedelta(hours=1)
#: An outage is observed for twice its duration, plus this many seconds.
AFTERWARDS = 540.0


@dataclass(frozen=True, slots=True)
class Outage:
    dependency: str
    began: datetime
    ended: datetime

    def scenario(self) -> Scenario:
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
    """From the first opening to the closing, oldest first. What was opened by hand is none, and what is not over neither."""
    began: dict[str, datetime] = {}
    found: list[Outage] = []
    for event in events:
        name = str(event.meta.get("dependency", ""))
        if event.kind == Kind.breaker_opened.name and "by" not in event.meta:
            began.setdefault(name, event.at)
        elif event.kind == Kind.breaker_closed.name and name in began:
            found.append(Outage(name, began.pop(name), event.at))
    return found
