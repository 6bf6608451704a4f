"""What strikes at a random moment: the workers of both stores, and what each store stands on."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any

from devservices.postgres import Postgres
from devservices.proxy import Proxy
from tests.e2e.faults.world import Site, Worker
from tests.torture.audit import Death

LEASE = 2.0
#: Whatever is done to the store as a whole is shorter than this, so that what recovers is seen.
OUTAGE = 1.0

Blow = Callable[[], Coroutine[Any, Any, None]]


class Crew:
    """The workers: each that was killed or stopped has a successor at once."""

    def __init__(
        self,
        site: Site,
        chance: Random,
        size: int,
        url: str,
        *options: str,
        lease: float = LEASE,
        **settings: str,
    ) -> None:
        self._site, self._chance, self._size, self._url, self._lease = site, chance, size, url, lease
        self._options = "--concurrency", "4", *options
        self._settings = {"lease": f"{lease:g}s", "heartbeat": f"{lease * 0.3:g}s", **settings}
        self._live: list[Worker] = []
        self._leaving: list[Worker] = []
        self._started: set[int] = set()  #: pids
        self.killed: list[Death] = []
        self.exits: Counter[str] = Counter()  #: of those that were told to stop
        self.by_itself: Counter[str] = Counter()  #: of those that were not

    def fill(self) -> None:
        """As a supervisor does: whoever has ended by itself, because the store was away when it started, is started again."""
        self._reap()
        for _ in range(self._size - len(self._live)):
            self._live.append(self._site.worker(*self._options, url=self._url, **self._settings))

    def _reap(self) -> None:
        for worker in [worker for worker in self._live if worker.process.poll() is not None]:
            self._live.remove(worker)
            self.by_itself[str(worker.process.returncode)] += 1

    @property
    def can_spare(self) -> bool:
        """Whether somebody is left to go on, when one more is struck."""
        return len(self._at_work()) > 1

    def _at_work(self) -> list[Worker]:
        """Those that have started: on a busy machine that takes a while, and nobody is left if all are struck before."""
        self._started |= {
            worker.pid
            for worker in self._live
            if worker.pid not in self._started and worker.told("worker.started")
        }
        return [worker for worker in self._live if worker.pid in self._started]

    def _victim(self) -> Worker:
        victim = self._chance.choice(self._at_work())
        self._live.remove(victim)
        return victim

    async def kill(self) -> None:
        victim = self._victim()
        self.killed.append(_now(victim))
        victim.kill()
        self.fill()

    async def freeze(self) -> None:
        """SIGSTOP, often until its leases are another's; then SIGCONT. It may also be killed in its sleep."""
        victim = self._victim()
        victim.signal(signal.SIGSTOP)
        frozen = _now(victim)  # nobody is served from then on
        await asyncio.sleep(self._chance.random() * 2.5 * self._lease)
        if self._chance.random() < 0.2:
            self.killed.append(frozen)
            victim.kill()
        else:
            victim.signal(signal.SIGCONT)
            self._live.append(victim)
        self.fill()

    async def stop(self) -> None:
        victim = self._victim()
        victim.signal(signal.SIGTERM)
        self._leaving.append(victim)
        self.fill()

    async def leave(self) -> None:
        """All are told to stop, once nobody is frozen; how each ended is counted."""
        self._reap()
        for worker in self._live:
            worker.signal(signal.SIGTERM)
        for worker in (*self._live, *self._leaving):
            self.exits[str(await worker.ended(30))] += 1


def _now(worker: Worker) -> Death:
    return Death(worker.pid, datetime.now(UTC), time.monotonic())


class Postgresql:
    """The proxy before the server, and the server itself."""

    def __init__(self, server: Postgres, proxy: Proxy, chance: Random) -> None:
        self._server, self._proxy, self._chance = server, proxy, chance
        self.blows: dict[str, tuple[int, Blow]] = {
            "connections reset": (3, self._reset),
            "nothing passes": (2, self._black_hole),
            "connections refused": (2, self._refuse),
            "slow network": (2, self._slow),
            "trickle": (1, self._trickle),
            "commit carried out, answer lost": (4, self._lose_answer),
            "request lost": (3, self._lose_request),
            "server killed": (1, self._crash),
        }

    async def _reset(self) -> None:
        self._proxy.reset()

    async def _black_hole(self) -> None:
        self._proxy.black_hole = True
        await asyncio.sleep(self._chance.random() * OUTAGE)
        self._proxy.heal()

    async def _refuse(self) -> None:
        self._proxy.refuse = True
        self._proxy.reset()
        await asyncio.sleep(self._chance.random() * OUTAGE)
        self._proxy.heal()

    async def _slow(self) -> None:
        self._proxy.delay = self._chance.random() * 0.2
        await asyncio.sleep(OUTAGE)
        self._proxy.heal()

    async def _trickle(self) -> None:
        self._proxy.trickle = 20_000
        await asyncio.sleep(OUTAGE)
        self._proxy.heal()

    async def _lose_answer(self) -> None:
        await self._eaten(self._proxy.lose_answer(self._chance.choice(["COMMIT", "INSERT", "DELETE", None])))

    async def _lose_request(self) -> None:
        await self._eaten(self._proxy.lose_request(self._chance.choice([b"COMMIT", b"\x00"])))

    async def _eaten(self, loss: threading.Event) -> None:
        await asyncio.to_thread(loss.wait, OUTAGE)
        self._proxy.heal()

    async def _crash(self) -> None:
        await asyncio.to_thread(self._server.kill)
        await asyncio.to_thread(self._server.start)


class Sqlite:
    """Others who use the same file."""

    def __init__(self, path: str, chance: Random) -> None:
        self._path, self._chance = path, chance
        self.blows: dict[str, tuple[int, Blow]] = {
            "file locked by another": (3, self._lock),
            "log brought home by another": (2, self._checkpoint),
            "snapshot held open": (1, self._snapshot),
        }

    @contextlib.contextmanager
    def _other(self) -> Iterator[sqlite3.Connection]:
        other = sqlite3.connect(self._path, isolation_level=None, timeout=5)
        try:
            yield other
        finally:
            other.close()

    async def _lock(self) -> None:
        with contextlib.suppress(sqlite3.OperationalError), self._other() as other:
            other.execute("BEGIN IMMEDIATE")
            await asyncio.sleep(self._chance.random() * OUTAGE)
            other.execute("ROLLBACK")

    async def _checkpoint(self) -> None:
        with contextlib.suppress(sqlite3.OperationalError), self._other() as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    async def _snapshot(self) -> None:
        with self._other() as other:
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM holdfast_job").fetchall()
            await asyncio.sleep(3 * OUTAGE)
            other.execute("ROLLBACK")
