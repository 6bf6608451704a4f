"""What happened in a simulation, told so that a person can follow it: blows, faults and events, in their order."""

from __future__ import annotations

import re
from collections.abc import Callable

from holdfast.jobs.job import Event
from tests.simulation.loop import current_actor

#: An event in words, where its own word is not enough.
WORDS = {
    "queued": "is enqueued",
    "processing": "is claimed",
    "complete": "completes",
    "retry": "fails and waits for its retry",
    "failed": "fails for good",
    "released": "is given back",
    "snoozed": "is put off by its handler",
    "reclaimed": "is taken from a worker whose lease ran out",
    "timed_out": "has passed its deadline",
    "cancelled": "is cancelled by a person",
    "manual_retry": "is retried by a person",
    "redriven": "is redriven by a person",
    "discarded": "is discarded by a person",
    "late_result": "had ended when a result came: it is put aside",
    "stale_write": "was another's when a write came: it is refused",
}
_ID = re.compile(r"00000000-0000-7000-8000-([0-9a-f]{12})")


class Diary:
    """*time* is that of the simulation, in seconds since its beginning."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._pages: list[tuple[float, str, Event | str]] = []

    def note(self, what: str) -> None:
        self._pages.append((self._time(), "", what))

    def note_here(self, what: str) -> None:
        """Of the process, the person or the network that is at it."""
        self._pages.append((self._time(), current_actor().name, what))

    def event(self, event: Event) -> None:
        self._pages.append((self._time(), current_actor().name, event))

    def story(self, about: str) -> list[str]:
        """All that happened; of the jobs, only those that *about* names, if it names any."""
        named = set(_ID.findall(about))
        told = []
        for seconds, who, what in self._pages:
            if isinstance(what, Event):
                if named and not named & set(_ID.findall(what.job_id)):
                    continue
                text = _in_words(what)
            else:
                text = what
            told.append(f"{seconds:8.2f} s  {f'[{who}] ' if who else ''}{text}")
        return told


def short(text: str) -> str:
    """The ids of a simulation are numbers, and are told as such."""
    return _ID.sub(lambda found: f"job {int(found[1], 16)}", text)


def _in_words(event: Event) -> str:
    what = WORDS.get(event.kind, event.kind)
    if not event.job_id:
        return str(event.kind).replace("_", " ")
    under = f" (attempt {event.attempt}, epoch {event.epoch})" if event.epoch else ""
    return f"{short(event.job_id)} {what}{under}"
