"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path
from typing import IO

#: A file that is being written ends with this; one that is left over is of a process that was killed.
PART = ".part"
_BUFFER = 64 * 1024
#: What a file system without hard links answers. There two who publish at the very same moment may replace each other.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


class Part:
    """A file under way to *target*: `write` what comes, then `publish`. Leaving the block without removes it. Only `write` and
    `publish` touch the disk, unless there is something to remove."""

    def __init__(self, target: Path, writer: str) -> None:
        """*writer* tells those apart who may write the same result at a time: a worker and one that was replaced."""
        self._target = target
        self._part = target.with_name(f".{target.name}.{writer}{PART}")
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()
            with contextlib.suppress(FileNotFoundError):
                self._part.unlink()

    def write(self, piece: bytes) -> None:
        self._opened().write(piece)

    def publish(self) -> None:
        """Durable under its name when this returns, also if the machine loses power then. What has that name already stays: a
        worker that was replaced, and wakes up with the result of its own attempt, changes nothing."""
        with self._opened() as file:
            file.flush()
            os.fsync(file.fileno())
        self._name()
        self._file = None
        folder = os.open(self._target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _name(self) -> None:
        try:
            os.link(self._part, self._target)  # a rename would replace what is there
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if not self._target.exists():
                self._part.replace(self._target)
        self._part.unlink(missing_ok=True)

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            try:
                self._file = self._create()
            except FileNotFoundError:  # the first in this folder
                make_folder(self._target.parent)
                self._file = self._create()
        return self._file

    def _create(self) -> IO[bytes]:
        """For this user only: what people upload is nobody else's business."""
        return open(self._part, "wb", _BUFFER, opener=lambda path, flags: os.open(path, flags, 0o600))


def make_folder(folder: Path) -> None:
    """Make *folder* for this user only, with those around it; one that exists keeps its mode."""
    for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
        missing.mkdir(0o700, exist_ok=True)


def create_private(file: Path) -> None:
    """Create a missing *file* for this user only, with the folders around it; one that exists keeps its mode."""
    make_folder(file.parent)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def kept_secret(file: Path) -> str:
    """Return the random text in *file*; the first time, make it, for this user only."""
    if not file.exists():
        with Part(file, str(os.getpid())) as part:
            part.write(secrets.token_hex(32).encode())
            part.publish()
    return file.read_text()


def sweep_parts(folder: Path, *, now: float, older_than: float = 3600.0) -> int:
    """Remove what processes that were killed left half written: no attempt takes *older_than* seconds. How many it were."""
    swept = 0
    for part in folder.glob(f".*{PART}"):
        with contextlib.suppress(FileNotFoundError):  # somebody else sweeps too
            if now - part.stat().st_mtime > older_than:
                part.unlink()
                swept += 1
    return swept
