"""What the watcher of the tour sees: the chapters as they come, and below them how all files stand right now."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from systems.converter.tour.stage import Stage

_STATES = {"queued": "yellow", "processing": "cyan", "complete": "green", "failed": "red"}
_WIDTH = 48


class Board:
    def __init__(self, stage: Stage, console: Console) -> None:
        self._stage, self._console = stage, console
        self._live: Live | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        with Live(console=self._console, refresh_per_second=8, transient=True) as live:
            self._live = live
            yield
        self._live = None

    def chapter(self, text: str) -> None:
        self._console.print(text)

    def until(self, happened: Callable[[dict[str, Any]], bool], *, seconds: float) -> bool:
        """Watch until it happens; whether it did in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            seen = self._stage.look()
            if self._live is not None:
                self._live.update(_drawn(seen))
            if happened(seen):
                return True
            time.sleep(0.1)  # it happens in other processes
        return False


def _drawn(seen: dict[str, Any]) -> RenderableType:
    counts = Counter(job["state"] for job in seen["jobs"])
    most = max(sum(counts.values()), 1)
    table = Table.grid(padding=(0, 2))
    for state, colour in _STATES.items():
        bar = "█" * round(_WIDTH * counts[state] / most)
        table.add_row(state, str(counts[state]), Text(bar, style=colour))
    waiting = next((job for job in seen["jobs"] if job["retry_in_ms"]), None)
    said = seen["banner"] or (waiting["message"] if waiting else "")
    return Group(table, Text(said, style="bold yellow"))


def summary(told: list[tuple[str, bool, str]]) -> Table:
    table = Table("promise", "held", "seen", title="What was promised, and what was seen")
    for promise, held, seen in told:
        table.add_row(promise, "[green]yes[/]" if held else "[bold red]NO[/]", seen)
    return table
