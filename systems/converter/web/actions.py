"""What people do about their files: retry and cancel."""

from __future__ import annotations

import anyio.to_thread

from holdfast import Conflict, Holdfast, JobRow, State
from systems.converter.codes import Code, public_code
from systems.converter.tasks import Converter
from systems.converter.web.callers import Caller
from systems.converter.web.problems import Refused
from systems.converter.web.showing import was_refused
from systems.converter.web.uploading import Uploading

_RETRYABLE = (State.FAILED, State.CANCELLED)


class Actions:
    """The actions of the API. Each takes the row as the caller may see it, and says why where it is not done."""

    def __init__(self, converter: Converter, uploading: Uploading) -> None:
        self._converter, self._uploading = converter, uploading
        self._app: Holdfast = converter.app

    async def retry(self, caller: Caller, row: JobRow) -> tuple[str, bool]:
        """Queue a file again; the id of the job that stands for it now, and whether that is a twin.

        A later upload of the same file may have been converted meanwhile. That job holds the dedupe key, and its result is
        what the caller wants.

        Raises:
            Refused: There is nothing to retry.
        """
        await self._must_be_retryable(row)
        try:
            await self._app.retry(row.id, by=caller.owner)
        except Conflict as conflict:
            if conflict.twin is None:
                raise
            handle = await self._uploading.again(row)
            return handle.id, handle.duplicate
        return row.id, False

    async def _must_be_retryable(self, row: JobRow) -> None:
        if was_refused(row):
            detail = "This file was not accepted, so there is nothing to retry. Upload a PDF of at most 50 MB instead."
            raise Refused(public_code(row.error_code), detail, status=409)
        if row.state not in _RETRYABLE:
            raise Refused(Code.NOT_READY, "Only a file that has failed or was cancelled can be retried.")
        if not await anyio.to_thread.run_sync(self._converter.source(row.id).exists):
            raise Refused(Code.EXPIRED)

    async def cancel(self, caller: Caller, row: JobRow) -> None:
        """End a file that waits or is being converted.

        Raises:
            Refused: It has ended already.
        """
        try:
            await self._app.cancel(row.id, by=caller.owner)
        except Conflict:
            raise Refused(
                Code.NOT_READY, "This file has ended already; there is nothing to cancel."
            ) from None
