"""What a child may use, and how it is held to it: by the kernel, so that no parser has to agree."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
from dataclasses import dataclass

from systems.converter.content import MAX_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one conversion."""

    upload_bytes: int = MAX_BYTES
    memory_bytes: int = 512 * 1024 * 1024  #: of address space, so there is never more of it in use
    seconds: int = 30  #: of processor time, and of time on the wall
    output_bytes: int = 512 * 1024 * 1024
    stalled_seconds: int = 30  #: an upload that sends nothing for so long has stopped


def confine(limits: Limits) -> None:
    """Hold the calling process to *limits*; it cannot undo that. Too long, and a signal ends it, whatever it is doing."""
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    # The second after the first signal is for nobody: the signal is not caught.
    resource.setrlimit(resource.RLIMIT_CPU, (limits.seconds, limits.seconds + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.output_bytes, limits.output_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for ending in (signal.SIGALRM, signal.SIGXCPU, signal.SIGXFSZ):
        signal.signal(ending, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limits.seconds)


_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_SECCOMP_MODE_FILTER = 2
_ALLOW, _DENY = 0x7FFF0000, 0x00050000 | errno.EPERM
#: pidfd_send_signal, io_uring_setup, io_uring_enter, io_uring_register: the same on both. io_uring opens sockets by itself.
_NEWER = (424, 425, 426, 427)
#: Machine → its name for the filter, and the numbers of socket, socketpair, connect, execve, execveat, ptrace, kill,
#: process_vm_readv, process_vm_writev. Files stay open to it: the parsers load data when they first need it. So does
#: tgkill, which `abort` needs, though it reaches threads of other processes of this user too.
_CALLS = {
    "x86_64": (0xC000003E, (41, 53, 42, 59, 322, 101, 62, 310, 311, *_NEWER)),
    "aarch64": (0xC00000B7, (198, 199, 203, 221, 281, 117, 129, 270, 271, *_NEWER)),
}
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06


def end_with_parent(parent: int) -> None:
    """Be killed when the process that started this one ends; at once if it has ended already."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)


def deny_network() -> bool:
    """Deny sockets, other programs, kill and io_uring to this process and all it forks. Return False where the
    kernel offers no filter."""
    machine = _CALLS.get(platform.machine()) if sys.platform == "linux" else None
    if machine is None:
        return False
    arch, denied = machine
    steps = [(_LOAD, 0, 0, 4), (_EQUAL, 0, len(denied) + 3, arch), (_LOAD, 0, 0, 0)]
    # On x86 a second set of numbers, from this one up, leads to the same calls.
    steps.append((_AT_LEAST, len(denied) + 1, 0, 0x40000000))
    steps += [(_EQUAL, len(denied) - nth, 0, call) for nth, call in enumerate(denied)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _DENY)]
    program = b"".join(struct.pack("HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(program, len(program))
    filter_ = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(buffer)), 16)
    libc = _libc()
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(filter_), 0, 0) == 0)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)
    return libc
