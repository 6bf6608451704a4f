"""The child of a `Browser`: `python -m … SOCKET FOLDER LIMITS`. Ends when its owner does, and tidies up after both."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import msgspec

from holdfast import UsageError
from holdfast.logs import Log, configure
from systems.screenshots.browser.alone import Outside, leave_network
from systems.screenshots.browser.chromium import find_program
from systems.screenshots.browser.clearing import clear
from systems.screenshots.browser.limits import Limits
from systems.screenshots.browser.studio import Studio
from systems.screenshots.browser.tree import end_family, family
from systems.screenshots.browser.wire import (
    Broken,
    Drop,
    Order,
    Ready,
    Refused,
    Taken,
    ToChild,
    receive,
    send,
)
from systems.screenshots.codes import Code
from systems.screenshots.failures import ShotFailed
from systems.screenshots.guard import Rules
from systems.screenshots.shot import Shot

log = Log("screenshots.browser")


class Child:
    def __init__(self, studio: Studio, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._studio, self._reader, self._writer = studio, reader, writer
        self._running: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Until the owner is gone."""
        decoder = msgspec.msgpack.Decoder(ToChild)
        send(self._writer, Ready())
        async with asyncio.TaskGroup() as group:
            try:
                while True:
                    match await receive(self._reader, decoder):
                        case Order(number, shot):
                            self._running[number] = group.create_task(self._take(number, shot))
                        case Drop(number):
                            if number in self._running:
                                self._running[number].cancel()
            except EOFError:
                for task in self._running.values():
                    task.cancel()

    async def _take(self, number: int, shot: Shot) -> None:
        try:
            picture = await self._studio.shoot(shot)
        except ShotFailed as failed:
            answer: Taken | Refused = Refused(number, failed.code, failed.detail)
        except Exception as error:
            log.error("screenshot.crashed", reason=f"{type(error).__name__}: {error}"[:300])
            answer = Refused(number, Code.BROWSER_CRASHED, "")
        else:
            answer = Taken(number, picture)
        finally:
            del self._running[number]
        send(self._writer, answer)


async def run(ours: socket.socket, limits: Limits, outside: Outside | None) -> int:
    # Playwright leaves answers behind that came too late for anybody; they are no news.
    asyncio.get_running_loop().set_exception_handler(
        lambda _, told: log.debug("event_loop.failed", reason=told["message"])
    )
    reader, writer = await asyncio.open_connection(sock=ours)
    try:
        program = find_program(os.environ)
        rules = Rules.read(os.environ)
        if outside is None:
            log.info("browser.not_isolated", reason="this process may not have a network of its own")
            made = Studio(program, rules, limits)
        else:
            made = Studio(program, rules, limits, resolve=outside.look_up, dial=outside.dial)
        async with made as studio:
            await Child(studio, reader, writer).serve()
    except UsageError as error:
        send(writer, Broken(str(error)))
        await writer.drain()
        return 1
    except ShotFailed:  # Chromium did not start; the log says why, and the next time it may
        return 1
    finally:
        writer.close()
    return 0


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner, whose end is seen here
    configure()
    ours = socket.socket(fileno=int(sys.argv[1]))
    limits = msgspec.json.decode(sys.argv[3], type=Limits)
    try:
        return asyncio.run(run(ours, limits, leave_network()))
    finally:
        for pid in family(os.getpid())[1:]:
            end_family(pid)
        clear(Path(sys.argv[2]))


if __name__ == "__main__":
    sys.exit(main())
