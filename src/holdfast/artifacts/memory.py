"""Artifacts in a dictionary, for tests."""

from __future__ import annotations

import errno


class MemoryArtifacts:
    """Artifacts in the dictionary `kept`."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def put(self, name: str, data: bytes) -> str:
        self.kept[name] = data
        return name

    async def get(self, reference: str) -> bytes:
        try:
            return self.kept[reference]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such artifact", reference) from None

    async def delete(self, reference: str) -> None:
        self.kept.pop(reference, None)
