"""Places outside of the database: what is in them, and how they fail."""

from __future__ import annotations

from pathlib import Path

from holdfast import Holdfast
from holdfast.engine.ports import ArtifactBackend

LARGE = {"pages": ["é" * 100] * 30, "@": None}


def files(kept: Path) -> list[str]:
    return sorted(path.relative_to(kept).as_posix() for path in kept.rglob("*") if path.is_file())


class Spoilt:
    """A place that fails now and then."""

    def __init__(self, inner: ArtifactBackend, *failures: BaseException | None) -> None:
        self.inner, self.failures = inner, list(failures)

    def _fail(self) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure

    async def put(self, name: str, data: bytes) -> str:
        self._fail()
        return await self.inner.put(name, data)

    async def get(self, reference: str) -> bytes:
        self._fail()
        return await self.inner.get(reference)

    async def delete(self, reference: str) -> None:
        self._fail()
        await self.inner.delete(reference)


async def spoil(app: Holdfast, *failures: BaseException | None) -> None:
    keeper = (await app.runtime.engine()).artifact_store
    assert keeper.artifacts is not None
    keeper.artifacts = Spoilt(keeper.artifacts, *failures)
