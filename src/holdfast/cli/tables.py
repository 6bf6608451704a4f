"""Values as people see them: tables that fit the terminal, times as "3 m ago"."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from holdfast.cli.views import encode

STYLES = {
    "complete": "green",
    "failed": "red",
    "cancelled": "dim",
    "processing": "cyan",
    "ok": "green",
    "problem": "bold red",
    "warning": "yellow",
}

NOTHING = "–"
#: A pipe has no width; wide enough that no row is folded for `grep`.
PIPE_WIDTH = 240
#: The last column of a table is prose and may be folded down to this.
ROOM_FOR_LAST = 20


def console(*, err: bool = False) -> Console:
    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() else int(os.environ.get("COLUMNS") or PIPE_WIDTH)
    return Console(stderr=err, highlight=False, width=width, soft_wrap=False)


def clean(value: object) -> str:
    """Text that cannot move the cursor, whatever is stored in the job."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in str(value))


def cell(value: object) -> Text:
    if value is None or value == "" or value == ():
        return Text(NOTHING, style="dim")
    if isinstance(value, datetime):
        return Text(ago(value))
    text = clean(encode(value).decode() if isinstance(value, dict | list | tuple) else value)
    return Text(text, style=STYLES.get(text, ""))


def ago(moment: datetime, now: datetime | None = None) -> str:
    """How long ago, or in how long."""
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    if seconds > 0:
        return f"{span(math.floor(seconds))} ago"
    return f"in {span(_nearest(-seconds))}"


def _nearest(seconds: float) -> float:
    """Round to days, hours, minutes or seconds: of a pause "for 10m" that was made by the command before, 10 minutes are left."""
    size = next((size for size in (86_400, 3_600, 60) if seconds >= size), 1)
    return math.floor(seconds / size + 0.5) * size if size > 1 else math.ceil(seconds)


def span(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size or (unit != "d" and seconds >= size):
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.3g} s"


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """A table on stdout. Ids are never cut: where the columns do not fit side by side, each row becomes a block."""
    filled = [[cell(value) for value in row] for row in rows]
    if not filled:
        print(empty)
        return
    screen = console()
    widths = [max(text.cell_len for text in column) for column in zip(*filled, strict=True)]
    if sum(widths[:-1]) + 3 * len(widths) + min(widths[-1], ROOM_FOR_LAST) > screen.width:
        for row in filled:
            _show_block(screen, columns, row)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns[:-1]:
        table.add_column(name, no_wrap=True)
    table.add_column(columns[-1], overflow="fold")
    for row in filled:
        table.add_row(*row)
    screen.print(table)


def _show_block(screen: Console, columns: Sequence[str], row: Sequence[Text]) -> None:
    screen.print(row[0], overflow="fold")
    facts = [
        Text.assemble((f"{name} ", "dim"), text) for name, text in zip(columns[1:], row[1:], strict=True)
    ]
    screen.print(Padding(Text("  ").join(facts), (0, 0, 0, 2)), overflow="fold")


def show_facts(facts: Mapping[str, Any]) -> None:
    """One value a line, empty ones left out."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        if value is None or value == () or value == "":
            continue
        if isinstance(value, datetime):
            value = f"{value.isoformat(timespec='milliseconds')} ({ago(value)})"
        table.add_row(name, cell(value))
    console().print(table)


def show_lines(lines: Sequence[str], *, empty: str) -> None:
    """Lines as they were written; what is longer than the terminal goes on below."""
    screen = console()
    for line in lines or [empty]:
        screen.print(Text(clean(line)), overflow="fold")


def heading(text: str) -> None:
    console().print(Text(f"\n{text}", style="bold"))
