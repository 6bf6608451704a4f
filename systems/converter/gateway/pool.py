"""The pool of a gateway's fork servers: it assigns files to them and replaces those that end."""

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

from holdfast.logging import Log
from systems.converter import refusals
from systems.converter.gateway.limits import Limits
from systems.converter.gateway.messages import MESSAGE_BYTES, Answer
from systems.converter.refusals import Refused

log = Log("converter.gateway")

#: Where `systems` is imported from, wherever the gateway was started.
_ROOT = Path(__file__).parents[3]
#: A fork server that does not answer within the time limit of a conversion and these seconds is replaced.
_GRACE = 5.0
_START_SECONDS = 20.0


class Lost(Exception):
    """The fork server has ended or does not answer. Its file may be given to another one."""


class ForkServer:
    """The gateway's end of a fork server process, which converts one file at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "systems.converter.gateway.fork_server",
                    str(theirs.fileno()),
                    str(os.getpid()),
                    msgspec.json.encode(limits).decode(),
                ],
                cwd=_ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches only the gateway, which ends its fork servers itself
            )
        ours.setblocking(False)
        self._socket = ours
        self.confined = False

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ready(self) -> None:
        """Wait until the process accepts files. Raise `Lost` if it does not."""
        self.confined = (await self._receive(_START_SECONDS)).confined

    async def convert(self, source: int, target: int, mapping: str) -> None:
        """Convert the PDF in the open file *source* to XML in *target*.

        Raises:
            Refused: The file cannot be converted.
            Lost: The fork server failed.
        """
        try:
            socket.send_fds(self._socket, [mapping.encode()], [source, target])
        except OSError as error:
            raise Lost(str(error)) from error
        answer = await self._receive(self._limits.seconds + _GRACE)
        if answer.refusal is not None:
            raise Refused(answer.refusal)
        if answer.error:
            raise Lost(answer.error)

    async def _receive(self, seconds: float) -> Answer:
        try:
            async with asyncio.timeout(seconds):
                message = await asyncio.get_running_loop().sock_recv(self._socket, MESSAGE_BYTES)
        except (OSError, TimeoutError) as error:
            raise Lost(f"{type(error).__name__}: {error}") from error
        if not message:
            raise Lost("it has ended")
        return msgspec.json.decode(message, type=Answer)

    def end(self) -> None:
        """Kill the process and its child."""
        self._socket.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Pool:
    """The fork servers of a gateway: *size* conversions run at a time, and *waiting* more may wait."""

    def __init__(self, size: int, limits: Limits, *, waiting: int) -> None:
        self._size, self._limits, self._waiting = size, limits, waiting
        #: None stands for one that has to be started.
        self._free: asyncio.LifoQueue[ForkServer | None] = asyncio.LifoQueue()
        self._all: set[ForkServer] = set()
        self._conversions = 0  #: those that run or wait
        self._failing = False  #: the last fork server that was needed was lost or did not start
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
        for fork_server in await asyncio.gather(*(self._start() for _ in range(self._size - 1))):
            self._free.put_nowait(fork_server)
        return self

    async def __aexit__(self, *error: object) -> None:
        while self._all:
            self._all.pop().end()

    @property
    def pids(self) -> list[int]:
        return sorted(fork_server.pid for fork_server in self._all)

    @property
    def busy(self) -> int:
        """The number of conversions that run or wait."""
        return self._conversions

    async def convert(self, source: int, target: int, mapping: str) -> None:
        """Convert the PDF in the open file *source* to XML in *target*.

        Raise `Refused` if that is not possible.
        """
        if self._conversions >= self._size + self._waiting:
            raise Refused(refusals.BUSY)
        self._conversions += 1
        try:
            for _ in range(2):  # the file did not cause the loss of a fork server: another one may try
                os.ftruncate(target, 0)
                os.lseek(target, 0, os.SEEK_SET)
                if await self._convert(source, target, mapping):
                    return
        finally:
            self._conversions -= 1
        raise Refused(refusals.NO_CONVERTER)

    async def _convert(self, source: int, target: int, mapping: str) -> bool:
        fork_server = await self._free.get()
        try:
            if fork_server is None:
                fork_server = await self._start()
            await fork_server.convert(source, target, mapping)
        except Refused:
            raise
        except Lost as lost:
            log.warning("fork_server.lost", reason=str(lost))
            self._failing = True
            self._drop(fork_server)
            fork_server = None
            return False
        except BaseException:  # cancelled: no caller is left to take the answer
            self._drop(fork_server)
            fork_server = None
            raise
        finally:
            self._free.put_nowait(fork_server)
        self._failing = False
        return True

    async def check(self) -> bool:
        """Return whether a file could be converted. After a loss, try to start a fork server.

        Health must not wait for the next file: a caller may hold back all files until the gateway is healthy.
        """
        if self._failing and not self._free.empty():
            fork_server = self._free.get_nowait()
            try:
                if fork_server is None:
                    fork_server = await self._start()
                self._failing = False
            except Lost as error:
                log.warning("fork_server.start_failed", reason=str(error))
            finally:
                self._free.put_nowait(fork_server)
        return not self._failing

    async def _start(self) -> ForkServer:
        try:
            fork_server = ForkServer(self._limits)
        except OSError as error:  # the system has no process or file to give
            raise Lost(str(error)) from error
        self._all.add(fork_server)
        try:
            await fork_server.ready()
        except BaseException:
            self._drop(fork_server)
            raise
        return fork_server

    def _drop(self, fork_server: ForkServer | None) -> None:
        if fork_server is not None and fork_server in self._all:
            self._all.discard(fork_server)
            fork_server.end()
