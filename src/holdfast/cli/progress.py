"""Progress bars for long commands, on stderr and only at a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar inside the block, which gets a function to report how many are done."""
    from holdfast.cli.tables import console

    screen = console(err=True)
    if not screen.is_terminal:
        yield lambda done: None
        return
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    with Progress(
        *Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn(), console=screen
    ) as bars:
        bar = bars.add_task(what, total=total)
        yield lambda done: bars.update(bar, completed=done)
