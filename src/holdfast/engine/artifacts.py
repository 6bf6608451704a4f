"""Keep results that are too large for a row, and files of handlers, outside of the database.

An artifact is named after its attempt (job and epoch). A repeated write has the same effect, and a worker that was replaced
cannot overwrite what its successor wrote. The store records an artifact before it is written, so that retention finds it
whatever happens in between.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from holdfast.engine.ports import ArtifactBackend, Store
from holdfast.errors import Fatal, ResultExpired, UsageError
from holdfast.jobs.job import Artifact, Lease
from holdfast.logging import Log
from holdfast.tasks.payload import size

log = Log("holdfast.artifacts")

#: How many artifacts are deleted at once.
AT_ONCE = 32

#: Marks a reference in the column of results. No JSON begins with it, so no result can be mistaken for a reference.
MARK = "@"

_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_REFERENCE = re.compile(rf"[0-9a-f-]{{36}}/[0-9]+(\.json|/{_FILE.pattern})")


def split_result(stored: str | None) -> tuple[str | None, str | None]:
    """Split the column of results into (JSON text, reference); at most one of them is not None."""
    if stored is not None and stored.startswith(MARK):
        return None, stored.removeprefix(MARK)
    return stored, None


class ArtifactStore:
    """Writes large results and files of handlers to *artifacts*. With None, there is no place to write to."""

    def __init__(self, store: Store, artifacts: ArtifactBackend | None, limit: int) -> None:
        self.artifacts, self.limit = artifacts, limit
        self._store = store

    async def keep_result(self, lease: Lease, text: str) -> str:
        """Return what the row holds for this result: its text, or a reference to it. Raises `Fatal` when there is no place for it."""
        if size(text) <= self.limit:
            return text
        if self.artifacts is None:
            raise Fatal(
                f"the result takes {size(text):,} bytes, the limit is {self.limit:,}", code="RESULT_TOO_LARGE"
            )
        return MARK + await self._put(lease, f"{lease.job_id}/{lease.epoch}.json", None, text.encode())

    async def keep_file(self, lease: Lease, name: str, data: bytes) -> str:
        """Write a file of a handler, and return its reference. Raises `UsageError` for a bad name or contents that are no bytes."""
        if not isinstance(name, str) or not _FILE.fullmatch(name):
            raise UsageError(
                f"{str(name)[:40]!r} cannot name a file; use up to 200 letters, digits, dots, dashes and underscores"
            )
        if not isinstance(data, bytes | bytearray | memoryview):
            raise UsageError(f"{name} holds a {type(data).__name__}; give bytes, e.g. text.encode()")
        return await self._put(lease, f"{lease.job_id}/{lease.epoch}/{name}", name, bytes(data))

    async def _put(self, lease: Lease, place: str, name: str | None, data: bytes) -> str:
        artifacts = self._open("there is no place to keep it")
        await self._store.record_artifact(lease, place, name, len(data))
        return await artifacts.put(place, data)

    async def read(self, reference: str) -> bytes:
        """Return the bytes of an artifact. Raises `ResultExpired` when it was removed."""
        if not _REFERENCE.fullmatch(reference):
            raise UsageError(f"{reference[:80]!r} is not a reference to an artifact; a job's row has it")
        artifacts = self._open(f"{reference} cannot be read")
        try:
            return await artifacts.get(reference)
        except FileNotFoundError:
            why = "it was removed, or is kept in another place than this process looks in"
            raise ResultExpired(f"the artifact {reference}", why) from None

    async def delete(self, due: Sequence[Artifact], patience: float | None = None) -> list[Artifact]:
        """Delete artifacts, for at most *patience* seconds, and return those that were deleted."""
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
                        break  # the place is broken, not one artifact
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
            if not isinstance(failure, OSError):  # a bug, not a failing disk
                raise failure
        return failures

    def _open(self, otherwise: str) -> ArtifactBackend:
        if self.artifacts is None:
            raise UsageError(f"{otherwise}: this process has no artifacts= setting; set HOLDFAST_ARTIFACTS")
        return self.artifacts
