"""Files that appear whole or not at all, and files that only this user may read."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path
from typing import IO

#: The suffix of a file that is being written. A leftover one belongs to a process that was killed.
PART = ".part"
_BUFFER = 64 * 1024
#: The errors of a file system without hard links. There, two writers that publish at the same moment may
#: replace each other's file.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


class Part:
    """A file that is written beside *target* and gets its name with `publish`.

    Leaving the block without `publish` removes what was written. The disk is first touched by `write` or
    `publish`.
    """

    def __init__(self, target: Path, writer: str) -> None:
        """*writer* distinguishes writers of one target, such as a worker and the one that replaced it."""
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
        """Give the file its name; when this returns it survives a power cut.

        An existing target stays as it is. A worker that lost its lease and wakes up therefore changes
        nothing.
        """
        with self._opened() as file:
            file.flush()
            os.fsync(file.fileno())
        self._link()
        self._file = None
        folder = os.open(self._target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _link(self) -> None:
        try:
            os.link(self._part, self._target)  # a rename would replace an existing file
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
            except FileNotFoundError:  # the first file in this folder
                make_folder(self._target.parent)
                self._file = self._create()
        return self._file

    def _create(self) -> IO[bytes]:
        # Only this user may read it: uploads are private.
        return open(self._part, "wb", _BUFFER, opener=lambda path, flags: os.open(path, flags, 0o600))


def make_folder(folder: Path) -> None:
    """Create *folder* and its missing parents for this user only. An existing folder keeps its mode."""
    for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
        missing.mkdir(0o700, exist_ok=True)


def create_private(file: Path) -> None:
    """Create *file* and its missing parents for this user only. An existing file keeps its mode."""
    make_folder(file.parent)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def kept_secret(file: Path) -> str:
    """Return the random secret in *file*. Create it the first time, readable by this user only."""
    if not file.exists():
        with Part(file, str(os.getpid())) as part:
            part.write(secrets.token_hex(32).encode())
            part.publish()
    return file.read_text()


def sweep_parts(folder: Path, *, now: float, older_than: float = 3600.0) -> int:
    """Remove files that killed processes left half written, and return their number.

    Args:
        folder: Where to look; its subfolders are left alone.
        now: The current time, in seconds since the epoch.
        older_than: The age in seconds from which no attempt can still be writing the file.
    """
    swept = 0
    for part in folder.glob(f".*{PART}"):
        with contextlib.suppress(FileNotFoundError):  # another process sweeps too
            if now - part.stat().st_mtime > older_than:
                part.unlink()
                swept += 1
    return swept
