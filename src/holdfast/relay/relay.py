"""The relay: brings messages from the outbox to their targets, one route for each target (E44)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import timedelta

from holdfast.domain.outbox import Lag
from holdfast.engine.outbox_store import OutboxStore
from holdfast.engine.ports import Clock
from holdfast.errors import StoreError
from holdfast.logs import Log
from holdfast.relay.route import Route

log = Log("holdfast.relay")

LOOK_EVERY = 10.0
AGAIN_AFTER = 5.0


class Relay:
    """Any number of them may run at once. *topics* are those that this app knows a target for."""

    def __init__(
        self,
        routes: Sequence[Route],
        topics: Collection[str],
        store: OutboxStore,
        clock: Clock,
        stale_after: timedelta,
    ) -> None:
        self._routes, self._store, self._clock = routes, store, clock
        self._watch = StaleMessages(frozenset(topics), stale_after)

    async def run(self, *, until_idle: bool = False) -> None:
        """Until stopped or cancelled: what is in hand is given back then."""
        log.info("relay.started", targets=sorted(route.target for route in self._routes))
        looking = asyncio.create_task(self._look(), name="relay watch")
        try:
            async with asyncio.TaskGroup() as group:
                for route in self._routes:
                    group.create_task(self._run(route, until_idle), name=f"relay {route.target}")
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            log.info("relay.stopped")

    def stop(self) -> None:
        """Take no more; `run` returns when what is in hand is settled."""
        for route in self._routes:
            route.stop()

    async def _run(self, route: Route, until_idle: bool) -> None:
        """A bug in one route ends neither it nor the others."""
        while True:
            try:
                return await route.run(until_idle=until_idle)
            except Exception:
                log.exception("relay.failed", target=route.target)
            await self._clock.sleep(AGAIN_AFTER)

    async def _look(self) -> None:
        while True:
            try:
                self._watch.look(await self._store.lags(), self._clock.monotonic())
            except StoreError as error:
                log.warning("relay.retrying", reason=str(error))
            except Exception:
                log.exception("relay.stale_check_failed")
            await self._clock.sleep(min(LOOK_EVERY, self._watch.stale_after.total_seconds() / 2))


class StaleMessages:
    """Says which topics have waited for too long; of each not more often than that."""

    def __init__(self, topics: frozenset[str], stale_after: timedelta) -> None:
        self.stale_after, self._topics = stale_after, topics
        self._told: dict[str, float] = {}

    def look(self, lags: Collection[Lag], now: float) -> list[str]:
        """The topics that were told of."""
        stale = {lag.topic: lag for lag in lags if lag.oldest is not None and lag.oldest >= self.stale_after}
        self._told = {topic: at for topic, at in self._told.items() if topic in stale}
        due = [t for t in stale if now - self._told.get(t, float("-inf")) >= self.stale_after.total_seconds()]
        for topic in due:
            self._told[topic] = now
            lag = stale[topic]
            log.warning(
                "outbox.stale",
                topic=topic,
                waiting=lag.waiting,
                oldest_seconds=round(lag.oldest.total_seconds()) if lag.oldest else 0,
                hint="`holdfast outbox list` shows why"
                if topic in self._topics
                else "this app declares no target for it",
            )
        return due
