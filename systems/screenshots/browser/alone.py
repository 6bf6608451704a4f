"""A network of its own for the browser's process, in which there is nothing but the guard.

The guard keeps Chromium's requests; this keeps Chromium itself, should a page ever get hold of it: the kernel knows no way out
of an empty network. What the guard connects to is opened by threads that have stayed outside. Linux only, and only for those who
may: root, for whom Chromium has no sandbox. For others it has one, which lets no page's process open a socket.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from systems.screenshots.guard.proxy import Streams, streams_of

_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1
_THREADS = 16


class Outside:
    """The network that was left: names are looked up and connections opened there."""

    def __init__(self, network: int) -> None:
        def stay() -> None:
            if _libc().setns(network, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "this thread cannot go back to the network that was left")

        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="outside", initializer=stay)

    async def look_up(self, host: str, port: int) -> Sequence[str]:
        def ask() -> list[str]:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(str(entry[4][0]) for entry in found))

        return await asyncio.get_running_loop().run_in_executor(self._threads, ask)

    async def dial(self, address: str, port: int) -> Streams:
        """Connect. The socket belongs to the network namespace it was opened in, whichever process uses it."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        loop = asyncio.get_running_loop()
        opened = await loop.run_in_executor(self._threads, socket.socket, family, socket.SOCK_STREAM)
        try:
            opened.setblocking(False)
            await loop.sock_connect(opened, (address, port))
            return await streams_of(opened)
        except BaseException:
            opened.close()
            raise


def leave_network() -> Outside | None:
    """Take this process, and all that it will start, out of the network. None where the kernel does not let it.

    Before any other thread is started: those would stay where they are.
    """
    if sys.platform != "linux":
        return None
    network = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if _libc().unshare(_CLONE_NEWNET) != 0:
        os.close(network)
        return None
    with socket.socket(
        socket.AF_INET, socket.SOCK_DGRAM
    ) as asking:  # the guard listens on loopback, which is down yet
        fcntl.ioctl(asking, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))
    return Outside(network)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
