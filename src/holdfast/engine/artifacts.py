"""Artifacts: what is too large for a row is put outside, and the row says where it is.

An artifact is named after its attempt (job and epoch), so a write that is repeated has the same effect, and a worker that
was replaced can never write over what its successor has made. It is noted in the store before it is written: whatever
happens in between, retention knows of it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from holdfast.domain.job import Artifact, Lease
from holdfast.engine.payload import size
from holdfast.engine.ports import ArtifactBackend, Store
from holdfast.errors import Fatal, ResultExpired, UsageError
from holdfast.logs import Log

log = Log("holdfast.artifacts")

#: How many are deleted at once.
AT_ONCE = 32

#: Before a reference, in the column of results. No JSON begins with it, so no result can be taken for a reference.
MARK = "@"

_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_REFERENCE = re.compile(rf"[0-9a-f-]{{36}}/[0-9]+(\.json|/{_FILE.pattern})")


def split_result(stored: str | None) -> tuple[str | None, str | None]:
    """(JSON text, reference) of what a store has in its column of results: one of them at most."""
    if stored is not None and stored.startswith(MARK):
        return None, stored.removeprefix(MARK)
    return stored, None


class ArtifactStore:
    """Puts results that are too large, and files of handlers, where *artifacts* are kept; None: nowhere."""

    def __init__(self, store: Store, artifacts: ArtifactBackend | None, limit: int) -> None:
        self.artifacts, self.limit = artifacts, limit
        self._store = store

    async def keep_result(self, lease: Lease, text: str) -> str:
        """What the row is to hold for this result: itself, or where it is. `Fatal` when it fits nowhere."""
        if size(text) <= self.limit:
            return text
        if self.artifacts is None:
            raise Fatal(
                f"the result takes {size(text):,} bytes, the limit is {self.limit:,}", code="RESULT_TOO_LARGE"
            )
        return MARK + await self._put(lease, f"{lease.job_id}/{lease.epoch}.json", None, text.encode())

    async def keep_file(self, lease: Lease, name: str, data: bytes) -> str:
        """Keep a file of the handler's own; its reference."""
        if not isinstance(name, str) or not _FILE.fullmatch(name):
            raise UsageError(
                f"{str(name)[:40]!r} cannot name a file; use up to 200 letters, digits, dots, dashes and underscores"
            )
        if not isinstance(data, bytes | bytearray | memoryview):
            raise UsageError(f"{name} holds a {type(data).__name__}; give bytes, e.g. text.encode()")
        return await self._put(lease, f"{lease.job_id}/{lease.epoch}/{name}", name, bytes(data))

    async def _put(self, lease: Lease, place: str, name: str | None, data: bytes) -> str:
        artifacts = self._open("there is nowhere to keep it")
        await self._store.record_artifact(lease, place, name, len(data))
        return await artifacts.put(place, data)

    async def read(self, reference: str) -> bytes:
        """What *reference* stands for; `ResultExpired` when it is not there any more."""
        if not _REFERENCE.fullmatch(reference):
            raise UsageError(f"{reference[:80]!r} is not a reference to an artifact; a job's row has it")
        artifacts = self._open(f"{reference} cannot be read")
        try:
            return await artifacts.get(reference)
        except FileNotFoundError:
            why = "it was removed, or is kept in another place than this process looks in"
            raise ResultExpired(f"the artifact {reference}", why) from None

    async def delete(self, due: Sequence[Artifact], patience: float | None = None) -> list[Artifact]:
        """Delete what was kept long enough, within *patience* seconds; those that are gone now."""
        if self.artifacts is None:
            log.warning(
                "artifact.not_deleted", artifacts=len(due), reason="this process has no artifacts= setting"
            )
            return []
        gone: list[Artifact] = []
        reason = "it takes long; the rest follows"
        try:
            async with asyncio.timeout(patience):
                for start in range(0, len(due), AT_ONCE):
                    failures = await self._delete_group(self.artifacts, due[start : start + AT_ONCE], gone)
                    if failures:
                        reason = str(failures[0])
                    if len(failures) == AT_ONCE:
                        break  # it is not about this one or that one
        except TimeoutError:
            pass
        if len(gone) < len(due):
            log.warning("artifact.not_deleted", artifacts=len(due) - len(gone), reason=reason)
        return gone

    async def _delete_group(
        self, artifacts: ArtifactBackend, group: Sequence[Artifact], gone: list[Artifact]
    ) -> list[BaseException]:
        async def delete(kept: Artifact) -> None:
            await artifacts.delete(kept.reference)
            gone.append(kept)

        ends = await asyncio.gather(*map(delete, group), return_exceptions=True)
        failures = [end for end in ends if end is not None]
        for failure in failures:
            if not isinstance(failure, OSError):  # a bug, not a bad day of the disk
                raise failure
        return failures

    def _open(self, otherwise: str) -> ArtifactBackend:
        if self.artifacts is None:
            raise UsageError(f"{otherwise}: this process has no artifacts= setting; set HOLDFAST_ARTIFACTS")
        return self.artifacts
