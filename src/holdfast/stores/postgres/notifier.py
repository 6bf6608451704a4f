"""Wake up callers that wait for work, here and in other processes, by NOTIFY. It is only a hint.

A NOTIFY inside the transaction of an enqueue would make all commits of the database wait for each other, because it holds a
lock through the fsync. So it is sent after the commit in a transaction of its own: at once if none was sent lately, else at
most every few milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any

import asyncpg

from holdfast.errors import StoreError
from holdfast.jobs.machine import Clock
from holdfast.stores.postgres.connections import Connections, abandon
from holdfast.stores.postgres.driver_errors import DRIVER_ERRORS

CHANNEL = "holdfast"
#: The payload after a caller's transaction has enqueued jobs with keys: `grant` has not queued them yet.
KEYS = "keys"
#: At least this many seconds are between two notifications.
PAUSE = 0.01
#: At least this many seconds are between two attempts to listen.
RELISTEN = 5.0


class Notifier:
    """Notifies other processes, listens to them, and wakes the callers of this process."""

    def __init__(self, lines: Connections, clock: Clock, channel: str = CHANNEL) -> None:
        self._lines, self._clock, self._channel = lines, clock, channel
        self._events: dict[Hashable, asyncio.Event] = {}
        self.rings = 0  #: how many wake-ups there were in this process
        self.calls = 0  #: how many of them may mean new work
        self._sending: asyncio.Task[None] | None = None
        self._wanted = False
        self._listener: asyncpg.Connection[Any] | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._listen_after = 0.0
        self.closed = (
            False  #: a caller that still waits while the store is closed must not make us listen again
        )
        self.keys_wait = False  #: `grant` should run before the next claim

    def notify_here(self) -> None:
        """Wake the callers that wait in this process."""
        self.rings += 1
        for event in self._events.values():
            event.set()

    def notify(self) -> None:
        """Wake the callers that wait in this process and in others."""
        self.calls += 1
        self.notify_here()
        self._wanted = True
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        try:
            while self._wanted:
                self._wanted = False
                try:
                    async with self._lines.take("notify") as connection:
                        # A hint need not wait for the disk. Both go in one statement, because a pooler keeps no settings.
                        await connection.execute(
                            f"SET LOCAL synchronous_commit = off; NOTIFY {self._channel}"
                        )
                except StoreError:
                    return  # only a hint: callers that wait poll too
                await self._clock.sleep(PAUSE)
        finally:
            self._sending = None

    async def wait(self, timeout: float, *, listen: bool = True, who: Hashable = None) -> None:
        """Return after *timeout* seconds, or earlier after a wake-up.

        Args:
            timeout: How long to wait at most.
            listen: Whether to listen to other processes too.
            who: The name of the caller. A caller does not miss a wake-up that happens between two of its waits.
        """
        event = self._events.get(who)
        if event is None:
            event = self._events[who] = asyncio.Event()
            if self.rings:  # one of them may have been for this caller
                event.set()
        if listen:
            self._keep_listening()
        try:
            async with asyncio.timeout(timeout):
                await event.wait()
        except TimeoutError:
            return
        finally:
            event.clear()

    def _keep_listening(self) -> None:
        """Keep one connection that listens. Behind a pooler, or while it is lost, only the poll finds work."""
        if self.closed or self._lines.pooled or self._connecting is not None:
            return
        lost = self._listener is None or self._listener.is_closed()
        if lost and self._clock.monotonic() >= self._listen_after:
            self._listen_after = self._clock.monotonic() + RELISTEN
            # In a task of its own: a waiting caller may be cancelled before the connection is open.
            self._connecting = asyncio.ensure_future(self._listen())

    async def _listen(self) -> None:
        try:
            self._listener = await self._lines.connect()
            await self._listener.add_listener(self._channel, self._heard)
            self.keys_wait = True  # a notification may have been sent before
            self.notify_here()
        except (StoreError, *DRIVER_ERRORS):
            if self._listener is not None:
                self._listener.terminate()
        finally:
            self._connecting = None

    def _heard(self, connection: object, pid: int, channel: str, payload: object) -> None:
        self.keys_wait = self.keys_wait or payload == KEYS
        self.calls += 1
        self.notify_here()

    def abandon(self) -> None:
        """Close the connection without its event loop, which is gone with its tasks."""
        listener, self._listener = self._listener, None
        if listener is not None:
            abandon(listener)

    async def close(self) -> None:
        self.closed = True
        tasks = [task for task in (self._sending, self._connecting) if task is not None]
        if tasks:  # the driver warns about a connection that is dropped while it is opened
            await asyncio.wait(tasks, timeout=1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listener is not None:
            listener, self._listener = self._listener, None
            try:
                await listener.close(timeout=2)
            except DRIVER_ERRORS:
                listener.terminate()
