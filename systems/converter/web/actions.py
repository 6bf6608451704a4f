"""The actions of users on their files: retry, cancel and remove."""

from __future__ import annotations

import anyio.to_thread

from holdfast import Conflict, Holdfast, JobRow, State
from systems.common.parts import create_private
from systems.converter.codes import Code, public_code
from systems.converter.tasks import Converter
from systems.converter.web.callers import Caller
from systems.converter.web.problems import Refused
from systems.converter.web.uploads import Uploader
from systems.converter.web.views import was_refused

_RETRYABLE = (State.FAILED, State.CANCELLED)
_ENDED = (State.COMPLETE, *_RETRYABLE)


class Actions:
    """The actions of the API.

    Each takes a row that the caller may see, and raises `Refused` if it is not possible.
    """

    def __init__(self, converter: Converter, uploader: Uploader) -> None:
        self._converter, self._uploader = converter, uploader
        self._app: Holdfast = converter.app

    async def retry(self, caller: Caller, row: JobRow) -> tuple[str, bool]:
        """Queue a file again. Return the id of its job from now on, and whether that is another upload's job.

        A later upload of the same file may have been converted meanwhile. That job then holds the dedupe key,
        and the caller gets its result.

        Raises:
            Refused: There is nothing to retry.
        """
        await self._must_be_retryable(row)
        try:
            await self._app.jobs.retry(row.id, by=caller.owner)
        except Conflict as conflict:
            if conflict.twin is None:
                raise
            handle = await self._uploader.enqueue_again(row)
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
        """Cancel a file that is queued or being converted.

        Raises:
            Refused: It has already ended.
        """
        try:
            await self._app.jobs.cancel(row.id, by=caller.owner)
        except Conflict:
            detail = "This file has already ended; there is nothing to cancel."
            raise Refused(Code.NOT_READY, detail) from None

    async def remove(self, row: JobRow) -> None:
        """Delete the PDF and the XML of a file that has ended, and hide it. Its job stays on record.

        Raises:
            Refused: It is queued or being converted.
        """
        if row.state not in _ENDED:
            raise Refused(Code.NOT_READY, "This file is still in progress; cancel it first.")

        def delete() -> None:
            create_private(self._converter.removed(row.id))  # first: what is half deleted is not shown
            for path in (self._converter.source(row.id), self._converter.result(row.id)):
                path.unlink(missing_ok=True)

        await anyio.to_thread.run_sync(delete)
