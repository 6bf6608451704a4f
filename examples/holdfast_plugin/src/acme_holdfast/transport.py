"""A transport: delivers the messages of topics whose address begins with spool://, one file for each message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast import Delivered, Message, Undelivered


class SpoolTransport:
    """Writes messages into a folder. *topics* holds the options that each topic was declared with."""

    def __init__(self, address: str, topics: Mapping[str, Mapping[str, Any]]) -> None:
        self._folder = Path("/" + address.partition("://")[2].lstrip("/"))
        self._suffixes = {name: options.get("suffix", ".json") for name, options in topics.items()}

    async def open(self) -> None:
        """Do nothing: the folder may appear later."""

    async def deliver(self, messages: Sequence[Message]) -> list[Delivered | Undelivered]:
        """Write each message; a name that is there already is the same message, sent again."""
        return [self._write(message) for message in messages]

    def _write(self, message: Message) -> Delivered | Undelivered:
        if not self._folder.is_dir():
            return Undelivered(f"{self._folder} is not there", away=True)
        (self._folder / f"{message.id}{self._suffixes[message.topic]}").write_bytes(message.body)
        return Delivered()

    async def close(self) -> None:
        """Do nothing: no file stays open."""
