"""The nurseries of a gateway: who is free, who waits, and who has to be replaced."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec

from holdfast.logs import Log
from systems.converter import refusals
from systems.converter.gateway.limits import Limits
from systems.converter.gateway.orders import MESSAGE_BYTES, Answer
from systems.converter.refusals import Refused

log = Log("converter.gateway")

#: Where `systems` is imported from, wherever the gateway was started.
_ROOT = Path(__file__).parents[3]
#: A nursery that has not answered for this much longer than a child may live is replaced.
_GRACE = 5.0
_START_SECONDS = 20.0


class Lost(Exception):
    """The nursery is gone. Nothing is known of the file it was at: it may be given to another."""


class Nursery:
    """One nursery process, seen from the gateway. It serves one file at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "systems.converter.gateway.nursery",
                    str(theirs.fileno()),
                    str(os.getpid()),
                    msgspec.json.encode(limits).decode(),
                ],
                cwd=_ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the gateway; it ends its nurseries itself
            )
        ours.setblocking(False)
        self._socket = ours
        self.confined = False

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ready(self) -> None:
        self.confined = (await self._hear(_START_SECONDS)).confined

    async def convert(self, source: int, target: int, mapping: str) -> None:
        """`Refused` when the file is at fault, `Lost` when the nursery is."""
        try:
            socket.send_fds(self._socket, [mapping.encode()], [source, target])
        except OSError as error:
            raise Lost(str(error)) from error
        answer = await self._hear(self._limits.seconds + _GRACE)
        if answer.refusal is not None:
            raise Refused(answer.refusal)
        if answer.error:
            raise Lost(answer.error)

    async def _hear(self, seconds: float) -> Answer:
        try:
            async with asyncio.timeout(seconds):
                said = await asyncio.get_running_loop().sock_recv(self._socket, MESSAGE_BYTES)
        except (OSError, TimeoutError) as error:
            raise Lost(f"{type(error).__name__}: {error}") from error
        if not said:
            raise Lost("it has ended")
        return msgspec.json.decode(said, type=Answer)

    def end(self) -> None:
        """Kill it and its child, if any."""
        self._socket.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Pool:
    """As many nurseries as conversions run at a time; a few more may wait for one."""

    def __init__(self, size: int, limits: Limits, *, waiting: int) -> None:
        self._size, self._limits, self._waiting = size, limits, waiting
        self._free: asyncio.LifoQueue[Nursery | None] = (
            asyncio.LifoQueue()
        )  #: None: one that is to be started
        self._all: set[Nursery] = set()
        self._asking = 0
        self._failing = False  #: the last nursery that was needed could not be had
        self.confined = False

    async def __aenter__(self) -> Pool:
        try:
            first = await self._start()
        except Lost as lost:
            raise RuntimeError(f"the converter's child process does not start: {lost}") from lost
        self.confined = first.confined
        if not first.confined:
            log.warning("sandbox.unavailable", reason="this kernel has no filter for system calls we know")
        self._free.put_nowait(first)
        for nursery in await asyncio.gather(*(self._start() for _ in range(self._size - 1))):
            self._free.put_nowait(nursery)
        return self

    async def __aexit__(self, *error: object) -> None:
        while self._all:
            self._all.pop().end()

    @property
    def pids(self) -> list[int]:
        return sorted(nursery.pid for nursery in self._all)

    @property
    def busy(self) -> int:
        """Conversions that run or wait."""
        return self._asking

    async def convert(self, source: int, target: int, mapping: str) -> None:
        """Convert the PDF in the open file *source* to XML in *target*. `Refused` tells why not."""
        if self._asking >= self._size + self._waiting:
            raise Refused(refusals.BUSY)
        self._asking += 1
        try:
            for _ in range(2):  # a nursery that was lost is not the file's fault: another one may try
                os.ftruncate(target, 0)
                os.lseek(target, 0, os.SEEK_SET)
                if await self._convert(source, target, mapping):
                    return
        finally:
            self._asking -= 1
        raise Refused(refusals.NO_CONVERTER)

    async def _convert(self, source: int, target: int, mapping: str) -> bool:
        nursery = await self._free.get()
        try:
            if nursery is None:
                nursery = await self._start()
            await nursery.convert(source, target, mapping)
        except Refused:
            raise
        except Lost as lost:
            log.warning("fork_server.lost", reason=str(lost))
            self._failing = True
            self._drop(nursery)
            nursery = None
            return False
        except BaseException:  # cancelled in the middle: what it would answer belongs to nobody
            self._drop(nursery)
            nursery = None
            raise
        finally:
            self._free.put_nowait(nursery)
        self._failing = False
        return True

    async def check(self) -> bool:
        """Whether a file would find a converter. After a loss that is tried: health must not wait for the next file,
        for who asks about it may hold back all files until it is good."""
        if self._failing and not self._free.empty():
            nursery = self._free.get_nowait()
            try:
                if nursery is None:
                    nursery = await self._start()
                self._failing = False
            except Lost as error:
                log.warning("fork_server.start_failed", reason=str(error))
            finally:
                self._free.put_nowait(nursery)
        return not self._failing

    async def _start(self) -> Nursery:
        try:
            nursery = Nursery(self._limits)
        except OSError as error:  # no process or no file can be had just now
            raise Lost(str(error)) from error
        self._all.add(nursery)
        try:
            await nursery.ready()
        except BaseException:
            self._drop(nursery)
            raise
        return nursery

    def _drop(self, nursery: Nursery | None) -> None:
        if nursery is not None and nursery in self._all:
            self._all.discard(nursery)
            nursery.end()
