"""A transport: writes each message of topics with an address such as spool:///a/folder to a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.plugins import Delivered, Message, Undelivered


class SpoolTransport:
    """Writes messages to a folder. *topics* holds the options of each topic's declaration."""

    def __init__(self, address: str, topics: Mapping[str, Mapping[str, Any]]) -> None:
        self._folder = Path("/" + address.partition("://")[2].lstrip("/"))
        self._suffixes = {name: options.get("suffix", ".json") for name, options in topics.items()}

    async def open(self) -> None:
        """Do nothing, because the folder may be created later."""

    async def deliver(self, messages: Sequence[Message]) -> list[Delivered | Undelivered]:
        """Write each message. An existing file holds the same message, sent before, and is overwritten."""
        return [self._write(message) for message in messages]

    def _write(self, message: Message) -> Delivered | Undelivered:
        if not self._folder.is_dir():
            return Undelivered(f"{self._folder} does not exist", away=True)
        (self._folder / f"{message.id}{self._suffixes[message.topic]}").write_bytes(message.body)
        return Delivered()

    async def close(self) -> None:
        """Do nothing, because no file stays open."""
