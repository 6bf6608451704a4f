"""Network isolation: moves the browser's process to an empty network namespace that holds only the guard.

The guard filters Chromium's requests. The namespace contains Chromium itself if a page takes control of it,
because the kernel has no route out of it. The guard's connections are opened by threads that stay in the
original network. Linux only, and only for root, for whom Chromium has no sandbox.
For other users it has one, in which no page's process can open a socket.
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


class OriginalNetwork:
    """The network that this process has left. Names are resolved and connections opened there, in threads."""

    def __init__(self, network: int) -> None:
        def return_to_network() -> None:
            if _libc().setns(network, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "this thread cannot return to the original network")

        self._threads = ThreadPoolExecutor(
            _THREADS, thread_name_prefix="outside", initializer=return_to_network
        )

    async def look_up(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of *host*. Raises `OSError` when it has none."""

        def resolve() -> list[str]:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(str(entry[4][0]) for entry in found))

        return await asyncio.get_running_loop().run_in_executor(self._threads, resolve)

    async def dial(self, address: str, port: int) -> Streams:
        """Connect to *address*.

        A socket belongs to the namespace it was opened in, so any thread can then use it.
        """
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


def leave_network() -> OriginalNetwork | None:
    """Move this process and its future children to an empty network; return None where the kernel refuses.

    Call this before any other thread is started, because running threads would stay in the original network.
    """
    if sys.platform != "linux":
        return None
    network = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if _libc().unshare(_CLONE_NEWNET) != 0:
        os.close(network)
        return None
    with socket.socket(
        socket.AF_INET, socket.SOCK_DGRAM
    ) as probe:  # the guard listens on loopback, which is still down
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))
    return OriginalNetwork(network)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
