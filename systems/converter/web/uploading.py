"""An upload: taken in piece by piece, durable on disk, then a job. What is refused is on record as a failed one (C1)."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread
from fastapi import Request
from starlette.requests import ClientDisconnect

from holdfast import Handle, HoldfastError, JobRow, State, UnknownJob
from holdfast.logs import Log
from systems.common.parts import Part, make_folder
from systems.converter.codes import Code
from systems.converter.content import HEAD_BYTES, LONGEST_MAPPING, MAX_BYTES, is_pdf
from systems.converter.tasks import Converter, dedupe_key
from systems.converter.web.callers import Caller
from systems.converter.web.form import BadForm, Form, shown, shown_name
from systems.converter.web.problems import Refused

log = Log("converter.web")

#: What a form may hold beside the file.
ENVELOPE = 64 * 1024
#: The most an upload may pause.
STALLED_SEC = 30.0
_PIECE = 256 * 1024
_PRIORITIES = ("high", "normal", "low")
_CLOSE = {"connection": "close"}  # the rest of what is being sent is not read


@dataclass(slots=True)
class Upload:
    """What is known of an upload so far."""

    job_id: str
    name: str = ""
    mapping: str = "text"
    priority: str = "normal"
    size: int = 0
    sha256: str = ""


class Uploading:
    def __init__(self, converter: Converter, *, stalled_sec: float = STALLED_SEC) -> None:
        self._converter, self._stalled_sec = converter, stalled_sec

    async def take(self, request: Request, caller: Caller) -> Handle[str]:
        """The job of this upload, or of its twin; `Refused` with what is on record."""
        upload = Upload(str(self._converter.app.new_id()))
        try:
            await self._store(request, upload, caller)
        except Refused as refused:
            raise await self._on_record(upload, caller, refused) from None
        return await self._enqueued(upload, caller.owner)

    async def again(self, row: JobRow) -> Handle[str]:
        """The twin of a file that has failed; or a new job for the same file, where the twin's result is gone."""
        known = row.payload
        upload = Upload(str(self._converter.app.new_id()), known["name"], known["mapping"])
        upload.size, upload.sha256 = known["size"], known["sha256"]
        source, copy = self._converter.source(row.id), self._converter.source(upload.job_id)
        try:
            await anyio.to_thread.run_sync(_copy, source, copy)
        except FileNotFoundError:
            raise Refused(Code.EXPIRED) from None
        except OSError as error:
            log.error("upload.not_stored", reason=f"{type(error).__name__}: {error.strerror}")
            raise Refused(Code.IO_ERROR) from None
        return await self._enqueued(upload, row.owner)

    async def _enqueued(self, upload: Upload, owner: str | None) -> Handle[str]:
        handle = await self._enqueue(upload, owner)
        if handle.duplicate:
            await anyio.to_thread.run_sync(self._converter.source(upload.job_id).unlink, True)
        return handle

    # -- the file -----------------------------------------------------------------------------------------------------
    async def _store(self, request: Request, upload: Upload, caller: Caller) -> None:
        try:
            form = Form(request.headers.get("content-type", ""))
            declared = _declared(request)
            await anyio.to_thread.run_sync(self._check_space, min(declared, MAX_BYTES))
            with Part(self._converter.source(upload.job_id), "upload") as part:
                await self._take_in(request, form, upload, part, declared)
                caller.must_prefer(upload.priority)
                await anyio.to_thread.run_sync(part.publish)
        except BadForm as bad:
            raise Refused(Code.NOT_PDF, str(bad), headers=_CLOSE) from None
        except OSError as error:
            log.error("upload.not_stored", reason=f"{type(error).__name__}: {error.strerror}")
            detail = "The file could not be stored. Upload it again later."
            raise Refused(Code.IO_ERROR, detail, headers=_CLOSE) from None

    async def _take_in(self, request: Request, form: Form, upload: Upload, part: Part, declared: int) -> None:
        digest, looked, taken = hashlib.sha256(), False, 0

        def keep(piece: bytes) -> None:
            digest.update(piece)
            part.write(piece)

        async for chunk in self._chunks(request):
            taken += len(chunk)
            form.feed(chunk)
            if form.file_name is not None:
                _note(form, upload)
                if declared > MAX_BYTES + ENVELOPE:  # by its own words; it is not read any further
                    upload.size = declared
                    raise Refused(Code.TOO_LARGE, headers=_CLOSE)
            arrived = upload.size + len(form.pending)
            if arrived > MAX_BYTES or taken > MAX_BYTES + ENVELOPE:
                upload.size = arrived
                raise Refused(Code.TOO_LARGE, headers=_CLOSE)
            if not looked and len(form.pending) >= HEAD_BYTES:
                _look(form.pending)
                looked = True
            if len(form.pending) >= _PIECE:
                upload.size = arrived
                piece = bytes(form.pending)
                form.pending.clear()
                await anyio.to_thread.run_sync(keep, piece)
        if not form.ended:
            raise BadForm("The form has no end; send it again.")
        if form.file_name is None:
            raise BadForm("The form has no file; send the PDF in the field file.")
        if not looked:
            _look(form.pending)
        upload.size += len(form.pending)
        await anyio.to_thread.run_sync(keep, bytes(form.pending))
        upload.sha256 = digest.hexdigest()
        _note(form, upload)
        upload.priority = _priority(form)

    async def _chunks(self, request: Request) -> AsyncIterator[bytes]:
        stream = request.stream()
        while True:
            try:
                async with asyncio.timeout(self._stalled_sec):
                    chunk = await anext(stream, None)
            except TimeoutError:
                raise ClientDisconnect from None  # a client that sends nothing for this long is gone
            if chunk is None:
                return
            yield chunk

    def _check_space(self, wanted: int) -> None:
        folder: Path = self._converter.settings.uploads_dir
        make_folder(folder)
        if shutil.disk_usage(folder).free - wanted < self._converter.settings.free_space_min_mb * 1_000_000:
            log.error("disk.nearly_full", hint="make room, or lower FREE_SPACE_MIN_MB")
            raise Refused(Code.IO_ERROR, "There is no room for uploads now. Try again later.", headers=_CLOSE)

    # -- the job ------------------------------------------------------------------------------------------------------
    async def _enqueue(self, upload: Upload, owner: str | None) -> Handle[str]:
        """Twins share a job while that is of use: one whose result is gone stands in for nobody.

        When the store does not answer, the source stays: the job may be there all the same. If it is not, the file is swept.
        """
        key = dedupe_key(upload.sha256, upload.mapping, upload.size)
        while True:
            chosen = self._converter.convert.options(
                id=upload.job_id, owner=owner, dedupe_key=key, priority=upload.priority
            )
            handle: Handle[str] = await chosen.enqueue(
                upload.mapping, name=upload.name, sha256=upload.sha256, size=upload.size
            )
            if not handle.duplicate:
                return handle
            try:
                twin = await handle.job()
            except UnknownJob:  # purged just now
                continue
            result = self._converter.result(twin.id)
            if twin.state is not State.COMPLETE or await anyio.to_thread.run_sync(result.exists):
                return handle
            key = f"{key}:{twin.id}"

    async def _on_record(self, upload: Upload, caller: Caller, refused: Refused) -> Refused:
        """The same refusal, with the job that keeps it, if the store takes it."""
        arguments = {"mapping": upload.mapping, "name": upload.name, "size": upload.size}
        try:
            refused.job_id = await self._converter.app.reject(
                "convert", arguments, refused.code.value, message=refused.detail, owner=caller.owner
            )
        except HoldfastError as error:
            log.warning("refusal.not_recorded", reason=str(error))
        return refused


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as opened, Part(target, "again") as part:
        while piece := opened.read(_PIECE):
            part.write(piece)
        part.publish()


def _priority(form: Form) -> str:
    given = form.fields.get("priority", "normal").strip().lower()
    if given not in _PRIORITIES:
        raise Refused(Code.UNKNOWN, "The priority is high, normal or low.", status=400)
    return given


def _note(form: Form, upload: Upload) -> None:
    """What the sender says of it, as far as it has come: the mapping may stand behind the file."""
    upload.name = shown_name(form.file_name)
    upload.mapping = shown(form.fields.get("mapping", "text"))[:LONGEST_MAPPING]


def _declared(request: Request) -> int:
    text = request.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0


def _look(head: bytearray) -> None:
    if not is_pdf(bytes(head[:HEAD_BYTES])):
        raise Refused(Code.NOT_PDF, headers=_CLOSE)
