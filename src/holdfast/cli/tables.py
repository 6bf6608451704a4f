"""Print values for people: tables that fit the terminal, times as "3 m ago"."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from holdfast.cli.times import ago
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
#: The width where there is no terminal: wide enough that rows are not folded for `grep`.
PIPE_WIDTH = 240
#: The last column is prose and may be folded to this width.
ROOM_FOR_LAST = 20


def console(*, err: bool = False) -> Console:
    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() else int(os.environ.get("COLUMNS") or PIPE_WIDTH)
    return Console(stderr=err, highlight=False, width=width, soft_wrap=False)


def clean(value: object) -> str:
    """Return *value* as text without control characters, which could move the cursor."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in str(value))


def cell(value: object) -> Text:
    if value is None or value == "" or value == ():
        return Text(NOTHING, style="dim")
    if isinstance(value, datetime):
        return Text(ago(value))
    text = clean(encode(value).decode() if isinstance(value, dict | list | tuple) else value)
    return Text(text, style=STYLES.get(text, ""))


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Print a table. Ids are never cut: if the columns do not fit side by side, each row becomes a block."""
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
    """Print one value a line, without empty ones."""
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
    """Print lines; long ones are wrapped."""
    screen = console()
    for line in lines or [empty]:
        screen.print(Text(clean(line)), overflow="fold")


def heading(text: str) -> None:
    console().print(Text(f"\n{text}", style="bold"))
