"""Receive an upload in pieces, store it on disk, then enqueue its job.

A refused upload is recorded as failed (C1).
"""

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

from holdfast import Handle, HoldfastError, JobRow, State, UnknownJob, new_job_id
from holdfast.logging import Log
from systems.common.parts import Part, make_folder
from systems.converter.codes import Code
from systems.converter.content import HEAD_BYTES, LONGEST_MAPPING, MAX_BYTES, is_pdf
from systems.converter.tasks import Converter, dedupe_key
from systems.converter.web.callers import Caller
from systems.converter.web.form import BadForm, Form, shown, shown_name
from systems.converter.web.problems import Refused

log = Log("converter.web")

#: The bytes that a form may hold in addition to the file.
ENVELOPE = 64 * 1024
#: An upload that sends nothing for this long has ended.
STALLED_SEC = 30.0
_CHUNK = 256 * 1024
_PRIORITIES = ("high", "normal", "low")
_CLOSE = {"connection": "close"}  # the rest of what is being sent is not read


@dataclass(slots=True)
class Upload:
    """What is known about an upload so far."""

    job_id: str
    name: str = ""
    mapping: str = "text"
    priority: str = "normal"
    size: int = 0
    sha256: str = ""


class Uploader:
    """Receives uploads and enqueues their jobs."""

    def __init__(self, converter: Converter, *, stalled_sec: float = STALLED_SEC) -> None:
        self._converter, self._stalled_sec = converter, stalled_sec

    async def take(self, request: Request, caller: Caller) -> Handle[str]:
        """Receive the upload in *request* and return its job, or the job of an equal upload.

        Raises:
            Refused: The upload is not accepted. A failed job records it.
        """
        upload = Upload(str(new_job_id()))
        try:
            await self._store(request, upload, caller)
        except Refused as refused:
            raise await self._record(upload, caller, refused) from None
        return await self._enqueue_or_share(upload, caller.owner)

    async def enqueue_again(self, row: JobRow) -> Handle[str]:
        """Return the job of an equal upload, or a new job for the same file if that job's result is gone.

        Raises:
            Refused: The file is gone or cannot be copied.
        """
        payload = row.payload
        upload = Upload(str(new_job_id()), payload["name"], payload["mapping"])
        upload.size, upload.sha256 = payload["size"], payload["sha256"]
        source, copy = self._converter.source(row.id), self._converter.source(upload.job_id)
        try:
            await anyio.to_thread.run_sync(_copy, source, copy)
        except FileNotFoundError:
            raise Refused(Code.EXPIRED) from None
        except OSError as error:
            log.error("upload.not_stored", reason=f"{type(error).__name__}: {error.strerror}")
            raise Refused(Code.IO_ERROR) from None
        return await self._enqueue_or_share(upload, row.owner)

    async def _enqueue_or_share(self, upload: Upload, owner: str | None) -> Handle[str]:
        handle = await self._enqueue(upload, owner)
        if handle.duplicate:
            await anyio.to_thread.run_sync(self._converter.source(upload.job_id).unlink, True)
        return handle

    # -- the file
    # -----------------------------------------------------------------------------------------------------
    async def _store(self, request: Request, upload: Upload, caller: Caller) -> None:
        try:
            form = Form(request.headers.get("content-type", ""))
            declared = _declared(request)
            await anyio.to_thread.run_sync(self._check_space, min(declared, MAX_BYTES))
            with Part(self._converter.source(upload.job_id), "upload") as part:
                await self._receive(request, form, upload, part, declared)
                caller.must_prefer(upload.priority)
                await anyio.to_thread.run_sync(part.publish)
        except BadForm as bad:
            raise Refused(Code.NOT_PDF, str(bad), headers=_CLOSE) from None
        except OSError as error:
            log.error("upload.not_stored", reason=f"{type(error).__name__}: {error.strerror}")
            detail = "The file could not be stored. Upload it again later."
            raise Refused(Code.IO_ERROR, detail, headers=_CLOSE) from None

    async def _receive(self, request: Request, form: Form, upload: Upload, part: Part, declared: int) -> None:
        digest, checked, received = hashlib.sha256(), False, 0

        def write(piece: bytes) -> None:
            digest.update(piece)
            part.write(piece)

        async for chunk in self._chunks(request):
            received += len(chunk)
            form.feed(chunk)
            if form.file_name is not None:
                _copy_fields(form, upload)
                if declared > MAX_BYTES + ENVELOPE:  # now its name is known; the rest need not be read
                    upload.size = declared
                    raise Refused(Code.TOO_LARGE, headers=_CLOSE)
            arrived = upload.size + len(form.pending)
            if arrived > MAX_BYTES or received > MAX_BYTES + ENVELOPE:
                upload.size = arrived
                raise Refused(Code.TOO_LARGE, headers=_CLOSE)
            if not checked and len(form.pending) >= HEAD_BYTES:
                _check_head(form.pending)
                checked = True
            if len(form.pending) >= _CHUNK:
                upload.size = arrived
                piece = bytes(form.pending)
                form.pending.clear()
                await anyio.to_thread.run_sync(write, piece)
        if not form.ended:
            raise BadForm("The form is incomplete; send it again.")
        if form.file_name is None:
            raise BadForm("The form has no file; send the PDF in the field file.")
        if not checked:
            _check_head(form.pending)
        upload.size += len(form.pending)
        await anyio.to_thread.run_sync(write, bytes(form.pending))
        upload.sha256 = digest.hexdigest()
        _copy_fields(form, upload)
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

    def _check_space(self, needed: int) -> None:
        folder: Path = self._converter.settings.uploads_dir
        make_folder(folder)
        if shutil.disk_usage(folder).free - needed < self._converter.settings.free_space_min_mb * 1_000_000:
            log.error("disk.nearly_full", hint="free disk space, or lower FREE_SPACE_MIN_MB")
            raise Refused(
                Code.IO_ERROR, "There is no disk space for uploads. Try again later.", headers=_CLOSE
            )

    # -- the job
    # ------------------------------------------------------------------------------------------------------
    async def _enqueue(self, upload: Upload, owner: str | None) -> Handle[str]:
        """Enqueue the upload, or return the job of an equal upload unless that job's result is gone.

        If the store does not answer, the source stays: the job may exist all the same. If it does not,
        retention removes the file.
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

    async def _record(self, upload: Upload, caller: Caller, refused: Refused) -> Refused:
        """Record the refusal as a failed job, if the store answers, and return it with the job's id."""
        arguments = {"mapping": upload.mapping, "name": upload.name, "size": upload.size}
        try:
            refused.job_id = await self._converter.app.tasks["convert"].reject(
                arguments, refused.code.value, message=refused.detail, owner=caller.owner
            )
        except HoldfastError as error:
            log.warning("refusal.not_recorded", reason=str(error))
        return refused


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as file, Part(target, "again") as part:
        while piece := file.read(_CHUNK):
            part.write(piece)
        part.publish()


def _priority(form: Form) -> str:
    priority = form.fields.get("priority", "normal").strip().lower()
    if priority not in _PRIORITIES:
        raise Refused(Code.UNKNOWN, "The priority must be high, normal or low.", status=400)
    return priority


def _copy_fields(form: Form, upload: Upload) -> None:
    """Copy the name and the mapping to *upload* if they have arrived: the mapping may follow the file."""
    upload.name = shown_name(form.file_name)
    upload.mapping = shown(form.fields.get("mapping", "text"))[:LONGEST_MAPPING]


def _declared(request: Request) -> int:
    text = request.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0


def _check_head(head: bytearray) -> None:
    if not is_pdf(bytes(head[:HEAD_BYTES])):
        raise Refused(Code.NOT_PDF, headers=_CLOSE)
