"""A disk that loses its power. What a process asked of its files is recorded, and played again up to a moment of choice.

strace tells every write, sync, truncation and removal, in the order in which they began and ended. A write is safe once a sync of
its file has come back that began after the write had ended; a new name is safe once its folder was synced. Whatever else was on its way
is in the hands of the disk: all of it may have arrived, none, some in any order, or halves of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

SECTOR = 512
CALLS = "openat,pwrite64,write,pwritev,writev,fallocate,fsync,fdatasync,ftruncate,unlink,rename"
_BEGUN = re.compile(r"^(\d+) +(\w+)\((.*)$")
_RESUMED = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>")
_TEXT = re.compile(r"[<\"]((?:\\x[0-9a-f]{2})*)[>\"]")


@dataclass
class Call:
    """One call: the lines of the record on which it began and ended."""

    name: str
    path: str
    begun: int
    ended: int
    data: bytes = b""
    place: int = 0  #: the offset of a write, the length of a truncation


def tracing(program: str, record: Path, paths: Iterable[Path]) -> list[str]:
    """The command under which a process has its calls recorded."""
    command = [program, "-f", "-y", "-xx", "--seccomp-bpf", "-s", str(2**22), "-o", str(record)]
    for path in paths:
        command += ["-P", str(path)]
    return [*command, "-e", f"trace={CALLS}"]


def read(record: Path) -> list[Call]:
    """What was recorded, in the order of the beginnings."""
    calls: list[Call] = []
    open_calls: dict[str, Call] = {}
    for number, line in enumerate(record.read_text().splitlines()):
        if resumed := _RESUMED.match(line):
            call = open_calls.pop(resumed[1], None)
            if call is not None:
                call.ended = number
        elif (begun := _BEGUN.match(line)) and (call := _call(begun[2], begun[3], number)):
            calls.append(call)
            if line.endswith("<unfinished ...>"):
                call.ended = 2**62  # unless the record tells of it
                open_calls[begun[1]] = call
    return calls


def _call(name: str, rest: str, number: int) -> Call | None:
    texts = [bytes.fromhex(text.replace("\\x", "")) for text in _TEXT.findall(rest)]
    match name:
        case "pwrite64":
            *_, place = re.findall(r"\d+", rest[rest.rindex('"') :].split("=")[0].split("<")[0])
            return Call(name, texts[0].decode(), number, number, texts[1], int(place))
        case "write":
            return Call(name, texts[0].decode(), number, number, texts[1])
        case "ftruncate":
            length = re.findall(r", (\d+)", rest)[0]
            return Call(name, texts[0].decode(), number, number, b"", int(length))
        case "fsync" | "fdatasync":
            return Call("sync", texts[0].decode(), number, number)
        case "unlink":
            return Call(name, texts[0].decode(), number, number)
        case "openat":
            made = "O_CREAT" in rest
            return Call("make", texts[1].decode(), number, number) if made else None
    raise AssertionError(f"nobody here knows what {name} does to a file")


#: What becomes of the writes that were on their way: of each, how much of it arrives.
Fate = Callable[[Random, Call], int]


def _torn(chance: Random, call: Call) -> int:
    whole = len(call.data)
    return chance.choice([0, whole, chance.randrange(0, whole + 1) // SECTOR * SECTOR])


FATES: dict[str, Fate] = {
    "nothing arrives": lambda chance, call: -1,
    "everything arrives": lambda chance, call: len(call.data),
    "some arrive": lambda chance, call: chance.choice([-1, len(call.data)]),
    "some arrive in part": _torn,
}


@dataclass
class Disk:
    """The files as they were before the record began, and the record. *folder* is where they are."""

    folder: str
    before: dict[str, bytes]
    calls: list[Call]
    syncs: dict[str, list[Call]] = field(init=False)
    made: dict[str, Call] = field(init=False)  #: the files that are new

    def __post_init__(self) -> None:
        self.syncs, self.made = {}, {}
        for call in self.calls:
            if call.name == "sync":
                self.syncs.setdefault(call.path, []).append(call)
            elif call.name == "make" and call.path not in self.before:
                self.made.setdefault(call.path, call)

    def is_safe(self, call: Call, moment: int, path: str) -> bool:
        return any(call.ended < sync.begun and sync.ended < moment for sync in self.syncs.get(path, ()))

    def after_a_cut(self, moment: int, fate: Fate, chance: Random) -> dict[str, bytes]:
        """What is on the disk when the power comes back. Calls on lines before *moment* have begun."""
        files = {path: bytearray(data) for path, data in self.before.items()}
        for call in self.calls:
            if call.begun >= moment:
                break
            match call.name:
                case "pwrite64" | "ftruncate":
                    length = len(call.data)
                    arrived = (
                        length if self.is_safe(call, moment, call.path) else min(fate(chance, call), length)
                    )
                    if arrived >= 0:
                        _apply(files.setdefault(call.path, bytearray()), call, arrived)
                case "make":
                    files.setdefault(call.path, bytearray())
                case "unlink" if (
                    self.is_safe(call, moment, self.folder) or fate(chance, Call("", "", 0, 0, b" ")) > 0
                ):
                    files.pop(call.path, None)
        for path, call in self.made.items():  # a name that was never synced may be gone, and the file with it
            if call.begun < moment and not self.is_safe(call, moment, self.folder) and fate(chance, call) < 0:
                files.pop(path, None)
        return {path: bytes(data) for path, data in files.items()}


def _apply(file: bytearray, call: Call, arrived: int) -> None:
    if call.name == "ftruncate":
        del file[call.place :]
        file.extend(bytes(call.place - len(file)))
        return
    file.extend(bytes(max(0, call.place - len(file))))
    file[call.place : call.place + arrived] = call.data[:arrived]
