"""The limits of a conversion. The kernel enforces them, so no parser has to cooperate."""

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
    """The limits of one conversion."""

    upload_bytes: int = MAX_BYTES
    memory_bytes: int = 512 * 1024 * 1024  #: of address space; memory in use is never more than that
    seconds: int = 30  #: of processor time, and of wall time
    output_bytes: int = 512 * 1024 * 1024
    stalled_seconds: int = 30  #: an upload that sends nothing for this long is refused


def confine(limits: Limits) -> None:
    """Apply *limits* to the calling process, for good. A signal ends it once its time is up."""
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    # The hard limit must be above the soft one. Nothing runs in that second: the soft limit's signal is not
    # caught.
    resource.setrlimit(resource.RLIMIT_CPU, (limits.seconds, limits.seconds + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.output_bytes, limits.output_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for ending in (signal.SIGALRM, signal.SIGXCPU, signal.SIGXFSZ):
        signal.signal(ending, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limits.seconds)


_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_SECCOMP_MODE_FILTER = 2
_ALLOW, _DENY = 0x7FFF0000, 0x00050000 | errno.EPERM
#: pidfd_send_signal, io_uring_setup, io_uring_enter, io_uring_register: the same numbers on both machines.
#: io_uring can open sockets without the calls below.
_NEWER = (424, 425, 426, 427)
#: Machine → its id in the filter, and the numbers of socket, socketpair, connect, execve, execveat, ptrace,
#: kill, process_vm_readv, process_vm_writev. Opening files stays allowed: the parsers load data when they
#: first need it. So does tgkill, which `abort` needs, although it also reaches threads of other processes of
#: this user.
_CALLS = {
    "x86_64": (0xC000003E, (41, 53, 42, 59, 322, 101, 62, 310, 311, *_NEWER)),
    "aarch64": (0xC00000B7, (198, 199, 203, 221, 281, 117, 129, 270, 271, *_NEWER)),
}
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06


def end_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends.

    Exit at once if the parent has already ended.
    """
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)


def deny_network() -> bool:
    """Deny sockets, exec, kill and io_uring to this process and its children.

    Return False if the kernel cannot.
    """
    machine = _CALLS.get(platform.machine()) if sys.platform == "linux" else None
    if machine is None:
        return False
    arch, denied = machine
    steps = [(_LOAD, 0, 0, 4), (_EQUAL, 0, len(denied) + 3, arch), (_LOAD, 0, 0, 0)]
    # On x86 a second range of numbers, from this one on, reaches the same calls.
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
