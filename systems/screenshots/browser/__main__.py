"""The child process of a `Browser`: `python -m … SOCKET FOLDER LIMITS`.

It exits when its owner does, and removes what both have left behind.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import msgspec

from holdfast import UsageError
from holdfast.logging import Log, configure
from systems.screenshots.browser.chromium import find_program
from systems.screenshots.browser.cleanup import clear
from systems.screenshots.browser.isolation import OriginalNetwork, leave_network
from systems.screenshots.browser.limits import Limits
from systems.screenshots.browser.processes import end_family, family
from systems.screenshots.browser.studio import Studio
from systems.screenshots.browser.wire import (
    CancelPicture,
    PictureFailed,
    PictureTaken,
    Ready,
    StartFailed,
    TakePicture,
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
    """Answers the owner's requests for pictures."""

    def __init__(self, studio: Studio, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._studio, self._reader, self._writer = studio, reader, writer
        self._running: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Answer requests until the owner closes the connection."""
        decoder = msgspec.msgpack.Decoder(ToChild)
        send(self._writer, Ready())
        async with asyncio.TaskGroup() as group:
            try:
                while True:
                    match await receive(self._reader, decoder):
                        case TakePicture(number, shot):
                            self._running[number] = group.create_task(self._take(number, shot))
                        case CancelPicture(number):
                            if number in self._running:
                                self._running[number].cancel()
            except EOFError:
                for task in self._running.values():
                    task.cancel()

    async def _take(self, number: int, shot: Shot) -> None:
        try:
            picture = await self._studio.shoot(shot)
        except ShotFailed as failed:
            answer: PictureTaken | PictureFailed = PictureFailed(number, failed.code, failed.detail)
        except Exception as error:
            log.error("screenshot.crashed", reason=f"{type(error).__name__}: {error}"[:300])
            answer = PictureFailed(number, Code.BROWSER_CRASHED, "")
        else:
            answer = PictureTaken(number, picture)
        finally:
            del self._running[number]
        send(self._writer, answer)


async def run(connection: socket.socket, limits: Limits, original_network: OriginalNetwork | None) -> int:
    # Playwright leaves futures behind whose results come too late. They are logged at DEBUG only.
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: log.debug("event_loop.failed", reason=context["message"])
    )
    reader, writer = await asyncio.open_connection(sock=connection)
    try:
        program = find_program(os.environ)
        rules = Rules.read(os.environ)
        if original_network is None:
            log.info("browser.not_isolated", reason="this process may not create a network namespace")
            studio = Studio(program, rules, limits)
        else:
            studio = Studio(
                program, rules, limits, resolve=original_network.look_up, dial=original_network.dial
            )
        async with studio:
            await Child(studio, reader, writer).serve()
    except UsageError as error:
        send(writer, StartFailed(str(error)))
        await writer.drain()
        return 1
    except ShotFailed:  # Chromium did not start, and the log says why; the owner may try again
        return 1
    finally:
        writer.close()
    return 0


def main() -> int:
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the owner; the child exits when the owner does
    configure()
    connection = socket.socket(fileno=int(sys.argv[1]))
    limits = msgspec.json.decode(sys.argv[3], type=Limits)
    try:
        return asyncio.run(run(connection, limits, leave_network()))
    finally:
        for pid in family(os.getpid())[1:]:
            end_family(pid)
        clear(Path(sys.argv[2]))


if __name__ == "__main__":
    sys.exit(main())
