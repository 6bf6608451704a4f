"""One torture: real workers on a real store, jobs that come in, people who click, and blows at random moments."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

from devservices.postgres import Postgres
from devservices.proxy import Proxy
from devservices.rabbitmq import RabbitMq
from holdfast.errors import Conflict, StoreError
from holdfast.jobs.job import JobId
from tests.e2e.faults.world import Site, eventually
from tests.torture.audit import Summary, audit, recoveries
from tests.torture.blows import LEASE, Blow, Crew, Postgresql, Sqlite
from tests.torture.brokers import Brokers, audit_messages, brokers, undelivered

#: Of the workers, beside those of the store.
WEIGHTS = {"worker killed": 12, "worker frozen": 7, "worker told to stop": 4}
#: So long may everything need to come to its end, once the blows are over.
PATIENCE = 90.0


class Place(NamedTuple):
    """Where it is done: a store, its workers, and the brokers beside it if there are any."""

    site: Site
    crew: Crew
    store: Postgresql | Sqlite
    brokers: Brokers | None


class Torture:
    """*pace*: jobs a second; *every*: seconds between two blows, on average."""

    def __init__(self, place: Place, chance: Random) -> None:
        crew, others = place.crew, {} if place.brokers is None else place.brokers.blows
        self._site, self._crew, self._brokers, self._chance = place.site, crew, place.brokers, chance
        #: What others need not wait for.
        self._beside = WEIGHTS.keys() | others.keys()
        self.pace, self.every = 4.0, 1.0
        self.acknowledged: dict[JobId, int] = {}
        self.counts: Counter[str] = Counter()
        self.clicks = self.refused = 0
        self._over = asyncio.Event()
        self._blows: dict[str, tuple[int, Blow]] = {
            "worker killed": (WEIGHTS["worker killed"], crew.kill),
            "worker frozen": (WEIGHTS["worker frozen"], crew.freeze),
            "worker told to stop": (WEIGHTS["worker told to stop"], crew.stop),
            **place.store.blows,
            **others,
        }

    async def run(self, seconds: float) -> None:
        self._crew.fill()
        await eventually(lambda: self._crew.can_spare, "two workers to start", PATIENCE)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._enqueue())
            tasks.create_task(self._click())
            tasks.create_task(self._strike())
            await asyncio.sleep(seconds)
            self._over.set()
        await self._drain()
        await self._crew.leave()

    async def _pause(self, mean: float) -> None:
        """Until about so long has passed, or all is over."""
        try:
            async with asyncio.timeout(self._chance.expovariate(1 / mean)):
                await self._over.wait()
        except TimeoutError:
            return

    async def _enqueue(self) -> None:
        """A client that sends each job until it was acknowledged."""
        engine, number = await self._site.app.runtime.engine(), 0
        task = self._site.app.tasks["toil" if self._brokers is None else "tell"]
        while not self._over.is_set():
            number += 1
            seconds = self._chance.random() ** 3 * LEASE
            [job] = task.options()._jobs([{"value": number, "seconds": seconds}])
            while True:
                try:
                    await engine.enqueue([job])
                    break
                except StoreError:
                    self.counts["enqueue sent again"] += 1
                    await asyncio.sleep(0.1)
            self.acknowledged[job.id] = number
            await self._pause(1 / self.pace)

    async def _click(self) -> None:
        while not self._over.is_set():
            await self._pause(0.5)
            if not self.acknowledged:
                continue
            job_id = self._chance.choice(list(self.acknowledged)[-200:])
            try:
                if self._chance.random() < 0.7:
                    await self._site.app.jobs.retry(job_id, by="ann")
                else:
                    await self._site.app.jobs.cancel(job_id, by="ann")
                self.clicks += 1
            except Conflict:
                self.refused += 1
            except StoreError:
                self.counts["click without an answer"] += 1

    async def _strike(self) -> None:
        """Workers are struck while others are still frozen, or a broker is away; the store is struck once at a time."""
        names = list(self._blows)
        weights = [weight for weight, _ in self._blows.values()]
        async with asyncio.TaskGroup() as tasks:
            while not self._over.is_set():
                await self._pause(self.every)
                [name] = self._chance.choices(names, weights)
                self._crew.fill()
                if name in WEIGHTS and not self._crew.can_spare:
                    continue
                self.counts[name] += 1
                if name in self._beside:
                    tasks.create_task(self._blows[name][1]())
                else:
                    await self._blows[name][1]()

    async def _drain(self) -> None:
        """Until nothing is unfinished; what then still is, is stuck."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                if not await self._unfinished():
                    return
            except StoreError:
                pass
            await asyncio.sleep(0.2)

    async def _unfinished(self) -> bool:
        counts = await self._site.app.jobs.counts()
        if counts["queued"] or counts["processing"]:
            return True
        return self._brokers is not None and bool(await undelivered(self._site))


@asynccontextmanager
async def place(
    store: str, folder: Path, chance: Random, hints: str, rabbit: RabbitMq | None, lease: float
) -> AsyncIterator[Place]:
    """A store of its own, with what can be done to it; `+brokers`: workers relay, and get their jobs by hints."""
    store, _, more = store.partition("+")
    async with AsyncExitStack() as stack:
        beside = await stack.enter_async_context(brokers(chance, hints, rabbit)) if more else None
        settings = {} if beside is None else beside.settings
        options = [] if beside is None else ["--relay"]
        if store == "sqlite":
            path = folder / "jobs.db"
            url = way = f"sqlite:///{path}"
            blows: Postgresql | Sqlite = Sqlite(str(path), chance)
        else:
            server = stack.enter_context(Postgres(durable=True))
            proxy = stack.enter_context(Proxy(server.host, server.port))
            url = server.create_database("torture")
            way, blows = proxy.route(url), Postgresql(server, proxy, chance)
        site = await stack.enter_async_context(Site(url, folder, **settings))
        yield Place(site, Crew(site, chance, 3, way, *options, lease=lease, **settings), blows, beside)


async def torture(
    store: str,
    minutes: float,
    seed: int,
    folder: Path,
    rabbit: RabbitMq | None = None,
    lease: float = LEASE,
) -> Summary:
    """*rabbit* is a broker that runs already and is not to be killed; without one there is one of our own, where it is needed."""
    chance = Random(seed)
    command = f"python -m tests.torture --store {store} --minutes {minutes:g} --seed {seed} --lease {lease:g}"
    summary = Summary(store, command, seed, minutes, lease)
    hints = "redis" if seed % 2 else "rabbitmq"
    async with place(store, folder, chance, hints, rabbit, lease) as found:
        site, crew, _, beside = found
        run = Torture(found, chance)
        await run.run(minutes * 60)
        events = await audit(site, run.acknowledged, summary)
        if beside is not None:
            await audit_messages(site, beside.rabbit, events, summary)
        summary.cores, summary.load = os.cpu_count() or 0, round(os.getloadavg()[2], 1)
        summary.blows = dict(sorted(run.counts.items()))
        summary.clicks, summary.clicks_refused = run.clicks, run.refused
        summary.exits, summary.ended_by_themselves = dict(crew.exits), dict(crew.by_itself)
        summary.attempts = len(site.journal("start"))
        summary.back, summary.again = recoveries(site, crew.killed, events)
    return summary
