"""The relay: deliver messages from the outbox to their targets, with one route per target (E44)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import timedelta

from holdfast.engine.tables.sql import Transacts
from holdfast.errors import StoreError
from holdfast.jobs.machine import Clock
from holdfast.logging import Log
from holdfast.outbox.lags import read_lags
from holdfast.outbox.model import Lag
from holdfast.outbox.relay.route import Route

log = Log("holdfast.relay")

CHECK_EVERY = 10.0
RESTART_AFTER = 5.0


class Relay:
    """Runs the routes of one process. Any number of relays may run at once.

    Args:
        routes: The routes to run.
        topics: The topics that this app declares.
        store: The store of the messages.
        clock: The clock of pauses.
        stale_after: How long a message may wait before it is logged.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        topics: Collection[str],
        store: Transacts,
        clock: Clock,
        stale_after: timedelta,
    ) -> None:
        self._routes, self._store, self._clock = routes, store, clock
        self._stale_messages = StaleMessages(frozenset(topics), stale_after)

    async def run(self, *, until_idle: bool = False) -> None:
        """Deliver messages until stopped or cancelled. A cancellation releases the messages in hand.

        With *until_idle*, return when no message is left that could be delivered.
        """
        log.info("relay.started", targets=sorted(route.target for route in self._routes))
        checking = asyncio.create_task(self._check_stale(), name="stale messages")
        try:
            async with asyncio.TaskGroup() as group:
                for route in self._routes:
                    group.create_task(self._run(route, until_idle), name=f"relay {route.target}")
        finally:
            checking.cancel()
            await asyncio.gather(checking, return_exceptions=True)
            log.info("relay.stopped")

    def stop(self) -> None:
        """Take no more messages. `run` returns when those in hand are settled."""
        for route in self._routes:
            route.stop()

    async def _run(self, route: Route, until_idle: bool) -> None:
        """Run one route, again after an unexpected error, which must end neither it nor the others."""
        while True:
            try:
                return await route.run(until_idle=until_idle)
            except Exception:
                log.exception("relay.failed", target=route.target)
            await self._clock.sleep(RESTART_AFTER)

    async def _check_stale(self) -> None:
        while True:
            try:
                self._stale_messages.check(await read_lags(self._store), self._clock.monotonic())
            except StoreError as error:
                log.warning("relay.retrying", reason=str(error))
            except Exception:
                log.exception("relay.stale_check_failed")
            await self._clock.sleep(min(CHECK_EVERY, self._stale_messages.stale_after.total_seconds() / 2))


class StaleMessages:
    """Logs topics whose oldest message has waited for *stale_after*, each at most once in that time."""

    def __init__(self, topics: frozenset[str], stale_after: timedelta) -> None:
        self.stale_after, self._topics = stale_after, topics
        self._logged_at: dict[str, float] = {}

    def check(self, lags: Collection[Lag], now: float) -> list[str]:
        """Log the topics that are due to be logged, and return them."""
        stale = {lag.topic: lag for lag in lags if lag.oldest is not None and lag.oldest >= self.stale_after}
        self._logged_at = {topic: at for topic, at in self._logged_at.items() if topic in stale}
        due = [
            t
            for t in stale
            if now - self._logged_at.get(t, float("-inf")) >= self.stale_after.total_seconds()
        ]
        for topic in due:
            self._logged_at[topic] = now
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
