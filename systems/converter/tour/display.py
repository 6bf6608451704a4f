"""The tour's display: the chapters, and below them a live count of the files by state."""

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

from systems.converter.tour.processes import Processes

_STATES = {"queued": "yellow", "processing": "cyan", "complete": "green", "failed": "red"}
_WIDTH = 48


class Display:
    """Prints chapters and keeps the live count up to date."""

    def __init__(self, processes: Processes, console: Console) -> None:
        self._processes, self._console = processes, console
        self._live: Live | None = None

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show the live count inside the `with` block."""
        with Live(console=self._console, refresh_per_second=8, transient=True) as live:
            self._live = live
            yield
        self._live = None

    def chapter(self, text: str) -> None:
        """Print a line above the live count."""
        self._console.print(text)

    def until(self, happened: Callable[[dict[str, Any]], bool], *, seconds: float) -> bool:
        """Update the count until *happened* returns true or *seconds* pass. Return whether it happened."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            seen = self._processes.jobs()
            if self._live is not None:
                self._live.update(_render(seen))
            if happened(seen):
                return True
            time.sleep(0.1)  # it happens in other processes
        return False


def _render(seen: dict[str, Any]) -> RenderableType:
    counts = Counter(job["state"] for job in seen["jobs"])
    total = max(sum(counts.values()), 1)
    table = Table.grid(padding=(0, 2))
    for state, colour in _STATES.items():
        bar = "█" * round(_WIDTH * counts[state] / total)
        table.add_row(state, str(counts[state]), Text(bar, style=colour))
    waiting = next((job for job in seen["jobs"] if job["retry_in_ms"]), None)
    message = seen["banner"] or (waiting["message"] if waiting else "")
    return Group(table, Text(message, style="bold yellow"))


def summary(findings: list[tuple[str, bool, str]]) -> Table:
    """Return a table of the promises, whether each held, and what was seen."""
    table = Table("promise", "held", "seen", title="What was promised, and what was seen")
    for promise, held, seen in findings:
        table.add_row(promise, "[green]yes[/]" if held else "[bold red]NO[/]", seen)
    return table
