"""Rows as JSON: redacted and encoded, away from the event loop where that takes long, and in pages of bounded size."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

import msgspec

from holdfast.server.responses import encode

T = TypeVar("T")

#: Bytes of JSON in a page, but for a single row that is larger.
MOST_BYTES = 4_000_000
#: How many rows are read at a time when each may hold a megabyte.
PIECE = 16
#: Characters that are redacted and encoded in less than a millisecond, on the event loop.
SHORT = 20_000


class Renderer:
    """Makes JSON of rows. *threads* do it for large ones: what redaction takes for a megabyte, others would wait for."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads

    async def one(self, view: Callable[[], Any], *contents: Any) -> msgspec.Raw:
        """The JSON of `view()`, which shows *contents*: what may be large of it."""
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
        """Up to *most* rows from behind *after*, as many as fit into a page; and where the next page begins, if there may be one.

        `read(after, limit)` gives the next rows; one that gives fewer than *limit* has no more.
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
    """The JSON of the first of *views*, as many as fit into a page."""
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
    """Whether *value* holds so much text that redacting it would be noticed by others. Looks at no more than that."""
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
