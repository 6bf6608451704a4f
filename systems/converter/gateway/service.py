"""The gateway's HTTP service.

| request | response |
|---|---|
| `POST /convert?mapping=text\\|jats\\|alto`, the PDF as body | 200 with the XML, or a problem (RFC 9457) with a code and a reason |
| `GET /healthz` | 200 when it can convert, 503 when it cannot |
| `GET`, `POST`, `DELETE /faults` | the fault switch; 404 unless it is enabled |
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator
from typing import IO

import anyio.to_thread
import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from holdfast.logging import Log
from systems.converter import refusals
from systems.converter.content import HEAD_BYTES, is_pdf
from systems.converter.gateway.faults import Fault, Faults, Switch
from systems.converter.gateway.limits import Limits
from systems.converter.gateway.pool import Pool
from systems.converter.mapping.names import MAPPINGS
from systems.converter.refusals import Refusal, Refused

log = Log("converter.gateway")

#: Uploads and results are written and read in chunks of this size, each in a thread: a slow disk delays no
#: other request.
_CHUNK = 256 * 1024
_XML = {"content-type": "application/xml; charset=utf-8", "x-content-type-options": "nosniff"}


class Service:
    """The handlers of the gateway's routes."""

    def __init__(self, pool: Pool, limits: Limits, *, uploads: int) -> None:
        """*uploads* is the number of requests that may run at a time."""
        self._pool, self._limits = pool, limits
        self._uploads, self._running = uploads, 0

    async def convert(self, request: Request) -> Response:
        if self._running >= self._uploads:
            return _problem(refusals.BUSY)
        self._running += 1
        try:
            return await self._convert(request)
        except Refused as refused:
            return _problem(refused.refusal)
        except ClientDisconnect:
            return Response(status_code=400)  # the client has gone
        finally:
            self._running -= 1

    async def _convert(self, request: Request) -> Response:
        mapping = request.query_params.get("mapping", "")
        if mapping not in MAPPINGS:
            raise Refused(refusals.unknown_mapping(mapping, MAPPINGS))
        declared = request.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and int(declared) > self._limits.upload_bytes:
            raise Refused(refusals.too_large(self._limits.upload_bytes))
        with contextlib.ExitStack() as files:
            try:
                source = files.enter_context(_unnamed_file())
                await self._receive(request, source)
                target = _unnamed_file()
            except OSError as error:  # no space left, or too many open files
                log.error("upload.not_stored", reason=f"{type(error).__name__}: {error.strerror}")
                raise Refused(refusals.NO_SPACE) from None
            handed_over = False
            try:
                await self._pool.convert(source.fileno(), target.fileno(), mapping)
                answer = await _xml(target)
                handed_over = isinstance(answer, StreamingResponse)
                return answer
            finally:
                if not handed_over:
                    target.close()

    async def _receive(self, request: Request, source: IO[bytes]) -> None:
        """Write the body to *source*. Raise `Refused` as soon as it is not a PDF, too large, or stalls."""
        size, buffer, checked = 0, bytearray(), False
        chunks = request.stream()
        while True:
            try:
                async with asyncio.timeout(self._limits.stalled_seconds):
                    chunk = await anext(chunks, None)
            except TimeoutError:
                raise Refused(refusals.UPLOAD_STALLED) from None
            if chunk is None:
                break
            size += len(chunk)
            if size > self._limits.upload_bytes:
                raise Refused(refusals.too_large(self._limits.upload_bytes))
            buffer += chunk
            if not checked and size >= HEAD_BYTES:
                _check_head(buffer)
                checked = True
            if len(buffer) >= _CHUNK:
                await anyio.to_thread.run_sync(source.write, bytes(buffer))
                buffer.clear()
        if not size:
            raise Refused(refusals.EMPTY)
        if not checked:
            _check_head(buffer)
        source.write(buffer)
        source.flush()

    async def healthz(self, _: Request) -> Response:
        if not await self._pool.check():
            return _problem(refusals.NO_CONVERTER)
        return JSONResponse(
            {"status": "ok", "busy": self._pool.busy, "mappings": MAPPINGS, "confined": self._pool.confined}
        )


def _check_head(head: bytearray) -> None:
    if not is_pdf(bytes(head[:HEAD_BYTES])):
        raise Refused(refusals.NOT_PDF)


def _unnamed_file() -> IO[bytes]:
    """Return a file without a name. It goes when the last process closes it."""
    return tempfile.TemporaryFile()


async def _xml(target: IO[bytes]) -> Response:
    size = os.fstat(target.fileno()).st_size
    if size <= _CHUNK:
        return Response(os.pread(target.fileno(), size, 0), headers=_XML)
    return StreamingResponse(_chunks(target), headers={**_XML, "content-length": str(size)})


async def _chunks(target: IO[bytes]) -> AsyncIterator[bytes]:
    with target:
        place = 0
        while chunk := await anyio.to_thread.run_sync(os.pread, target.fileno(), _CHUNK, place):
            place += len(chunk)
            yield chunk


def _problem(refusal: Refusal) -> Response:
    log.info("conversion.refused", status=refusal.status, code=refusal.code)
    headers = {"retry-after": "1"} if refusal.status in (429, 503) else {}
    return JSONResponse(refusal.problem(), refusal.status, headers, media_type="application/problem+json")


class FaultSwitch:
    """The handlers of the fault switch's routes."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch

    async def show(self, _: Request) -> Response:
        fault = self._switch.current()
        return JSONResponse({"fault": msgspec.to_builtins(fault), "struck": self._switch.struck})

    async def set(self, request: Request) -> Response:
        try:
            fault = msgspec.json.decode(await request.body(), type=Fault)
        except msgspec.DecodeError as error:
            return _problem(Refusal(422, "VALIDATION_ERROR", f"This is not a fault: {error}."))
        self._switch.set(fault)
        return await self.show(request)

    async def clear(self, request: Request) -> Response:
        self._switch.set(None)
        return await self.show(request)


def make_app(*, size: int, limits: Limits | None = None, waiting: int = 64, faults: bool = False) -> ASGIApp:
    """Return the gateway as an ASGI application. Its fork servers run for its lifespan."""
    limits = limits or Limits()
    pool = Pool(size, limits, waiting=waiting)
    service = Service(pool, limits, uploads=size + waiting)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with pool:
            yield

    routes = [
        Route("/convert", service.convert, methods=["POST"]),
        Route("/healthz", service.healthz, methods=["GET"]),
    ]
    switch = Switch()
    if faults:
        handlers = FaultSwitch(switch)
        routes += [
            Route("/faults", handlers.show, methods=["GET"]),
            Route("/faults", handlers.set, methods=["POST"]),
            Route("/faults", handlers.clear, methods=["DELETE"]),
        ]
    app = Starlette(routes=routes, lifespan=lifespan)
    return Faults(app, switch) if faults else app
