"""The owner's side of the browser: limits concurrency, and replaces a child process that is lost."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast import UsageError
from holdfast.logging import Log
from systems.screenshots.browser.cleanup import clear
from systems.screenshots.browser.limits import Limits
from systems.screenshots.browser.processes import end_family
from systems.screenshots.browser.wire import (
    CancelPicture,
    PictureFailed,
    PictureTaken,
    Ready,
    StartFailed,
    TakePicture,
    ToOwner,
    receive,
    send,
)
from systems.screenshots.codes import Code
from systems.screenshots.failures import ShotFailed
from systems.screenshots.shot import Picture, Shot

log = Log("screenshots.browser")

#: The folder from which the child imports `systems`.
_ROOT = Path(__file__).parents[3]
_START_SECONDS = 60.0
#: A child whose answer is late by this much is replaced.
_GRACE_SECONDS = 4.0
_END_SECONDS = 5.0


#: The environment variables that the child gets. The others may hold secrets, which an attacker in Chromium
#: could read.
_PASSED_ON = re.compile(r"PATH|LANG|TZ|(LC_|LD_|PYTHON|FONTCONFIG|SSL_CERT|SCREENSHOTS_|HOLDFAST_LOG).*")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if _PASSED_ON.fullmatch(name)}


class _Child:
    """The owner's side of one child process."""

    def __init__(self, limits: Limits) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="screenshots-"))
        self._socket, child_socket = socket.socketpair()
        with child_socket:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "systems.screenshots.browser",
                    str(child_socket.fileno()),
                    str(self._folder),
                    msgspec.json.encode(limits).decode(),
                ],
                cwd=_ROOT,
                # Chromium's files are removed with the child, and its profile's path tells whose Chromium it
                # is.
                env=_environment() | {"TMPDIR": str(self._folder), "HOME": str(self._folder)},
                pass_fds=[child_socket.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._waiting: dict[int, asyncio.Future[Picture]] = {}
        self._numbers = itertools.count(1)
        self._receiving: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._decoder = msgspec.msgpack.Decoder(ToOwner)
        self.lost = False

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ready(self) -> None:
        """Wait until the child can take pictures.

        Raises `UsageError` when it cannot run here at all, and `ShotFailed` when another start may work.
        """
        self._reader, self._writer = await asyncio.open_connection(sock=self._socket)
        try:
            async with asyncio.timeout(_START_SECONDS):
                message = await receive(self._reader, self._decoder)
        except (EOFError, TimeoutError) as error:
            raise ShotFailed(Code.BROWSER_CRASHED) from error
        if not isinstance(message, Ready):
            raise (
                UsageError(message.reason)
                if isinstance(message, StartFailed)
                else ShotFailed(Code.BROWSER_CRASHED)
            )
        self._receiving = asyncio.create_task(self._receive())

    async def shoot(self, shot: Shot, seconds: float) -> Picture:
        """Take a picture.

        Raises `ShotFailed`; without an answer within *seconds* the child counts as lost.
        """
        assert self._writer is not None
        number = next(self._numbers)
        answer: asyncio.Future[Picture] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            send(self._writer, TakePicture(number, shot))
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError as error:
            self.lost = True  # a working child would have answered by now
            raise ShotFailed(Code.NAVIGATION_TIMEOUT) from error
        except asyncio.CancelledError:
            send(self._writer, CancelPicture(number))
            raise
        finally:
            del self._waiting[number]

    async def _receive(self) -> None:
        try:
            while True:
                match await receive(self._reader, self._decoder):
                    case PictureTaken(number, picture):
                        if (answer := self._waiting.get(number)) and not answer.done():
                            answer.set_result(picture)
                    case PictureFailed(number, code, detail):
                        if (answer := self._waiting.get(number)) and not answer.done():
                            answer.set_exception(ShotFailed(code, detail))
        except EOFError:
            self.lost = True
            self._fail_waiting()

    def _fail_waiting(self) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ShotFailed(Code.BROWSER_CRASHED))

    async def close(self) -> None:
        """End the child and all its processes: gracefully if it responds, by SIGKILL otherwise."""
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.gather(self._receiving, return_exceptions=True)
        self._fail_waiting()
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()
        else:
            self._socket.close()
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        if not self.lost:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
        if self._process.poll() is None:
            end_family(self._process.pid)
            self._process.wait()
        clear(self._folder)


class Browser:
    """Takes pictures in a child process, which is replaced when it is lost.

    Use it as `async with Browser(Limits(concurrency=4)) as browser: await browser.shoot(Shot(url=…))`. What
    pages may reach, and which Chromium is used, come from the environment: SCREENSHOTS_PORTS,
    SCREENSHOTS_ALLOW, SCREENSHOTS_CHROMIUM.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._slots = asyncio.Semaphore(self.limits.concurrency)
        self._start_lock = asyncio.Lock()
        self._child: _Child | None = None

    async def __aenter__(self) -> Browser:
        await self._running_child()
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._child is not None:
            await self._child.close()
            self._child = None

    @property
    def pid(self) -> int | None:
        """The child's process id; None when there is no child."""
        return self._child.pid if self._child is not None else None

    async def shoot(self, shot: Shot) -> Picture:
        """Take a picture. Raises `ShotFailed`.

        This waits for a free slot first, and then takes at most `limits.seconds` and 5 seconds more.
        """
        async with self._slots:
            child = await self._running_child()
            return await child.shoot(shot, self.limits.seconds + _GRACE_SECONDS)

    async def _running_child(self) -> _Child:
        async with self._start_lock:
            if self._child is not None and not self._child.lost:
                return self._child
            if self._child is not None:
                log.warning("browser.replaced", pid=self._child.pid)
                await self._child.close()
                self._child = None
            child = _Child(self.limits)
            try:
                await child.ready()
            except BaseException:
                await child.close()
                raise
            self._child = child
            return child
