"""The browser as its users hold it: bounds how many sit at a time, and replaces a child that is lost."""

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
from holdfast.logs import Log
from systems.screenshots.browser.clearing import clear
from systems.screenshots.browser.limits import Limits
from systems.screenshots.browser.tree import end_family
from systems.screenshots.browser.wire import (
    Broken,
    Drop,
    Order,
    Ready,
    Refused,
    Taken,
    ToOwner,
    receive,
    send,
)
from systems.screenshots.codes import Code
from systems.screenshots.failures import ShotFailed
from systems.screenshots.shot import Picture, Shot

log = Log("screenshots.browser")

#: Where `systems` is imported from, wherever the browser is used.
_ROOT = Path(__file__).parents[3]
_START_SECONDS = 60.0
#: A child that has not answered for this much longer than a job may take is replaced.
_GRACE_SECONDS = 4.0
_END_SECONDS = 5.0


#: What the child gets to know of its owner's environment. Not the rest: who holds Chromium could read keys and passwords there.
_KNOWN = re.compile(r"PATH|LANG|TZ|(LC_|LD_|PYTHON|FONTCONFIG|SSL_CERT|SCREENSHOTS_|HOLDFAST_LOG).*")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if _KNOWN.fullmatch(name)}


class _Child:
    """One child process, seen from its owner."""

    def __init__(self, limits: Limits) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="screenshots-"))
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "systems.screenshots.browser",
                    str(theirs.fileno()),
                    str(self._folder),
                    msgspec.json.encode(limits).decode(),
                ],
                cwd=_ROOT,
                # What Chromium puts aside goes with the child, however that ends, and shows which Chromium was its own.
                env=_environment() | {"TMPDIR": str(self._folder), "HOME": str(self._folder)},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._waiting: dict[int, asyncio.Future[Picture]] = {}
        self._numbers = itertools.count(1)
        self._hearing: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._decoder = msgspec.msgpack.Decoder(ToOwner)
        self.lost = False

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ready(self) -> None:
        """`UsageError` when it cannot begin here at all, `ShotFailed` when it may another time."""
        self._reader, self._writer = await asyncio.open_connection(sock=self._socket)
        try:
            async with asyncio.timeout(_START_SECONDS):
                said = await receive(self._reader, self._decoder)
        except (EOFError, TimeoutError) as error:
            raise ShotFailed(Code.BROWSER_CRASHED) from error
        if not isinstance(said, Ready):
            raise UsageError(said.reason) if isinstance(said, Broken) else ShotFailed(Code.BROWSER_CRASHED)
        self._hearing = asyncio.create_task(self._hear())

    async def shoot(self, shot: Shot, seconds: float) -> Picture:
        assert self._writer is not None
        number = next(self._numbers)
        answer: asyncio.Future[Picture] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            send(self._writer, Order(number, shot))
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError as error:
            self.lost = True  # a child that keeps its word has answered by now
            raise ShotFailed(Code.NAVIGATION_TIMEOUT) from error
        except asyncio.CancelledError:
            send(self._writer, Drop(number))
            raise
        finally:
            del self._waiting[number]

    async def _hear(self) -> None:
        try:
            while True:
                match await receive(self._reader, self._decoder):
                    case Taken(number, picture):
                        if (answer := self._waiting.get(number)) and not answer.done():
                            answer.set_result(picture)
                    case Refused(number, code, detail):
                        if (answer := self._waiting.get(number)) and not answer.done():
                            answer.set_exception(ShotFailed(code, detail))
        except EOFError:
            self.lost = True
            self._fail()

    def _fail(self) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ShotFailed(Code.BROWSER_CRASHED))

    async def close(self) -> None:
        """In order if it can; for sure in any case, with all that it started."""
        if self._hearing is not None:
            self._hearing.cancel()
            await asyncio.gather(self._hearing, return_exceptions=True)
        self._fail()
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
    """`async with Browser(Limits(sittings=4)) as browser: await browser.shoot(Shot(url=…))`.

    What pages may reach and which Chromium is used come from the environment: SCREENSHOTS_PORTS, SCREENSHOTS_ALLOW,
    SCREENSHOTS_CHROMIUM.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._room = asyncio.Semaphore(self.limits.sittings)
        self._opening = asyncio.Lock()
        self._child: _Child | None = None

    async def __aenter__(self) -> Browser:
        await self._have()
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._child is not None:
            await self._child.close()
            self._child = None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None else None

    async def shoot(self, shot: Shot) -> Picture:
        """A picture, or `ShotFailed`. It waits for room first; then it takes the limit of seconds and 5 more at most."""
        async with self._room:
            child = await self._have()
            return await child.shoot(shot, self.limits.seconds + _GRACE_SECONDS)

    async def _have(self) -> _Child:
        async with self._opening:
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
