"""Artifacts in a folder that all workers and readers share.

A file is written beside its place and moved there when it is on disk, so a reader that finds it finds all of it. What a worker
that died has left half-written is removed with the artifact it was to become.
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
    """*threads* do the work: a disk may be slow, and the event loop must not wait for it."""

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

    def _write(self, place: Path, data: bytes) -> None:
        self._make_folder(place.parent)
        draft, file = self._new_draft(place)
        try:
            with open(file, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            os.rename(draft, place)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        _sync_folder(place.parent)

    def _make_folder(self, folder: Path) -> None:
        """With the folders around it, each on disk before the next is made in it."""
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        folder.mkdir(0o700, exist_ok=True)
        _sync_folder(folder.parent)

    def _new_draft(self, place: Path) -> tuple[Path, int]:
        """A new file that nobody else writes to, on this machine or another."""
        while True:
            draft = place.with_name(f".{place.name}.{os.getpid()}-{next(self._numbers)}.draft")
            try:
                return draft, os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                continue

    def _remove(self, place: Path) -> None:
        try:
            for draft in place.parent.glob(f".{place.name}.*.draft"):
                draft.unlink(missing_ok=True)
            place.unlink(missing_ok=True)
        except NotADirectoryError:
            return
        for folder in place.parents:
            if folder == self._folder:
                break
            try:
                folder.rmdir()
            except OSError:  # somebody else's artifact is in it, or it is gone already
                break


def _sync_folder(folder: Path) -> None:
    """A new name is on disk when its folder is."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
