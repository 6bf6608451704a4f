"""Artifacts in a folder that all workers and readers share.

A file is written as a draft beside its path and renamed when it is on disk, so readers find complete files
only. A draft that a dead worker left is removed together with the artifact.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor
from itertools import count
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class FileArtifacts:
    """Artifacts as files under *folder*.

    The *threads* read and write, so that a slow disk never blocks the event loop.
    """

    def __init__(self, folder: Path, threads: Executor) -> None:
        self._folder, self._threads = folder.absolute(), threads
        self._numbers = count(1)

    async def put(self, name: str, data: bytes) -> str:
        await self._in_thread(lambda: self._write(self._folder / name, data))
        return name

    async def get(self, reference: str) -> bytes:
        return await self._in_thread((self._folder / reference).read_bytes)

    async def delete(self, reference: str) -> None:
        await self._in_thread(lambda: self._remove(self._folder / reference))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _write(self, path: Path, data: bytes) -> None:
        self._make_folder(path.parent)
        draft, file = self._new_draft(path)
        try:
            with open(file, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            os.rename(draft, path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)

    def _make_folder(self, folder: Path) -> None:
        """Create the folder and its parents, each synced to disk before the next."""
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        folder.mkdir(0o700, exist_ok=True)
        _sync_folder(folder.parent)

    def _new_draft(self, path: Path) -> tuple[Path, int]:
        """Create and open a new file that no other process writes to, on this machine or another."""
        while True:
            draft = path.with_name(f".{path.name}.{os.getpid()}-{next(self._numbers)}.draft")
            try:
                return draft, os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                continue

    def _remove(self, path: Path) -> None:
        try:
            for draft in path.parent.glob(f".{path.name}.*.draft"):
                draft.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
        except NotADirectoryError:
            return
        for folder in path.parents:
            if folder == self._folder:
                break
            try:
                folder.rmdir()
            except OSError:  # it holds another artifact, or it is gone already
                break


def _sync_folder(folder: Path) -> None:
    """Sync a folder to disk, which makes new names in it durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
