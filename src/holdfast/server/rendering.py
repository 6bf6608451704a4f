"""Rows as JSON: redacted and encoded, in a thread if that takes long, in pages of limited size."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

import msgspec

from holdfast.server.responses import encode

T = TypeVar("T")

#: The most bytes of JSON in a page. A single larger row makes a page of its own.
MOST_BYTES = 4_000_000
#: How many rows are read at a time when each may have a megabyte.
PIECE = 16
#: Fewer characters than this are redacted and encoded in less than a millisecond, so on the event loop.
SHORT = 20_000


class Renderer:
    """Encodes rows. Large ones are encoded in *threads*, because to redact a megabyte would block the event loop."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads

    async def one(self, view: Callable[[], Any], *contents: Any) -> msgspec.Raw:
        """Return the JSON of `view()`. *contents* are the parts of it that may be large."""
        if not is_large(contents):
            return msgspec.Raw(encode(view()))
        loop = asyncio.get_running_loop()
        return msgspec.Raw(await loop.run_in_executor(self._threads, lambda: encode(view())))

    async def page(
        self,
        read: Callable[[str | None, int], Awaitable[Sequence[T]]],
        view: Callable[[T], Any],
        place: Callable[[T], str],
        *,
        after: str | None,
        most: int,
        piece: int = PIECE,
        contents: Callable[[T], Any] = lambda row: None,
    ) -> tuple[list[msgspec.Raw], str | None]:
        """Return up to *most* rows that follow *after*, as many as fit into a page, and where the next page begins, or None.

        Args:
            read: Called as `read(after, limit)`, returns the next rows. Fewer than *limit* are the last ones.
            view: Returns what is shown of a row.
            place: Returns the position of a row.
            after: The position to begin after; None for the first page.
            most: The most rows.
            piece: How many rows are read at a time.
            contents: Returns the part of a row that may be large.
        """
        shown: list[msgspec.Raw] = []
        size = 0
        while True:
            wanted = min(piece, most - len(shown))
            rows = await read(after, wanted)
            for row in rows:
                text = await self.one(lambda row=row: view(row), contents(row))  # type: ignore[misc]
                size += len(text)
                if shown and size > MOST_BYTES:
                    return shown, after
                shown.append(text)
                after = place(row)
            if len(rows) < wanted:
                return shown, None
            if len(shown) == most:
                return shown, after


def fitting(views: Iterable[Any]) -> list[msgspec.Raw]:
    """Return the JSON of as many of *views* as fit into a page."""
    shown: list[msgspec.Raw] = []
    size = 0
    for view in views:
        text = encode(view)
        size += len(text)
        if shown and size > MOST_BYTES:
            break
        shown.append(msgspec.Raw(text))
    return shown


def is_large(value: Any) -> bool:
    """Return whether *value* has more than `SHORT` characters. It looks at no more of it than that."""
    left, waiting = SHORT, [value]
    while waiting and left > 0:
        one = waiting.pop()
        left -= len(one) if isinstance(one, str) else 8
        if isinstance(one, Mapping):
            left -= sum(map(len, one)) if len(one) < SHORT else SHORT
            waiting.extend(one.values())
        elif isinstance(one, list | tuple):
            waiting.extend(one[:SHORT])
    return left <= 0
