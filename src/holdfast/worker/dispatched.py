"""Where a worker's jobs come from when there is a broker: hints from there, claimed in the store by their ids.

```text
  broker there ──▶ take hints ──▶ claim_jobs ──▶ some? done
                        │ none                       │ none: they were stale, take again
                        ▼                            ▼
                   look at the store, once a poll; and now and then however much the broker gives
  broker away ───▶ claim from the store, as without a broker
```

Lanes that are held are not asked for: their hints wait at the broker. A group with bounds, and a trial behind a half-open
breaker, are claimed from the store alone.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Protocol

from holdfast.domain.job import Claimed, Lane, Session
from holdfast.domain.lanes import HoldIndex
from holdfast.engine.dispatcher import Dispatcher
from holdfast.engine.engine import Engine
from holdfast.engine.lane_store import Cap

#: However much the broker gives, this often the store is looked at too: what the broker has lost is found there.
SWEEP_EVERY = 5.0
#: How often it is asked what is held.
HOLDS_EVERY = 1.0
#: How often hints are taken again when all of them were stale.
ROUNDS = 20
MOST_GROUPS = 1000


class JobSource(Protocol):
    """Where jobs are claimed; a store is one."""

    async def claim(
        self,
        session: Session,
        lanes: Sequence[Lane],
        limit: int,
        *,
        caps: Sequence[Cap] = (),
        trial: bool = False,
    ) -> list[Claimed]: ...

    async def wait_for_work(self, lanes: Sequence[Lane], timeout: float) -> None: ...


class DispatchedJobs:
    def __init__(self, engine: Engine, broker: Dispatcher) -> None:
        self._engine, self._store, self._broker, self._clock = engine, engine.store, broker, engine.clock
        self._look_at: dict[tuple[Lane, ...], float] = {}  #: when the store is looked at although …
        self._sweep_at: dict[tuple[Lane, ...], float] = {}  #: … the broker has nothing, or enough
        self._splits: dict[tuple[Lane, ...], tuple[list[Lane], list[Lane]]] = {}
        self._holds: HoldIndex | None = None  #: None: nothing is held
        self._holds_due = -math.inf
        self._turn = 0

    async def claim(
        self,
        session: Session,
        lanes: Sequence[Lane],
        limit: int,
        *,
        caps: Sequence[Cap] = (),
        trial: bool = False,
    ) -> list[Claimed]:
        """As `Store.claim`, but from the broker where it hands them out. Within a lane by priority, then by time; lanes in
        turn. Whose turn it is among owners only the store knows."""
        if caps or trial or not self._broker.there:
            return await self._store.claim(session, lanes, limit, caps=caps, trial=trial)
        ours, others = self._split(lanes)
        claimed = await self._claim(session, ours, limit) if ours else []
        if others and len(claimed) < limit:
            claimed += await self._store.claim(session, others, limit - len(claimed))
        return claimed

    async def wait_for_work(self, lanes: Sequence[Lane], timeout: float) -> None:
        ours, others = self._split(lanes) if self._broker.there else ([], list(lanes))
        if not ours:
            await self._store.wait_for_work(lanes, timeout)
            return
        waits = [asyncio.ensure_future(self._wait(ours, timeout))]
        if others:
            waits.append(asyncio.ensure_future(self._store.wait_for_work(others, timeout)))
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        for wait in done:
            wait.result()

    async def _wait(self, lanes: list[Lane], timeout: float) -> None:
        asked = self._unheld(lanes)
        if asked:
            await self._broker.ask(lambda dispatch: dispatch.wait(asked, timeout))
        if not asked or not self._broker.there:
            await self._store.wait_for_work(lanes, timeout)

    def _split(self, lanes: Sequence[Lane]) -> tuple[list[Lane], list[Lane]]:
        """Those that the broker hands out, and the others."""
        group = tuple(lanes)
        if group not in self._splits:
            handed = {lane: self._broker.hands_out(lane) for lane in lanes}
            ours = [lane for lane in lanes if handed[lane]]
            self._splits[group] = ours, [lane for lane in lanes if not handed[lane]]
        return self._splits[group]

    async def _claim(self, session: Session, lanes: list[Lane], limit: int) -> list[Claimed]:
        group, now = tuple(lanes), self._clock.monotonic()
        if now >= self._sweep_at.get(group, -math.inf):
            self._sweep_at[group] = now + SWEEP_EVERY
            if claimed := await self._look(session, group, limit):
                return claimed
        claimed = await self._take(session, lanes, limit)
        if not claimed and self._clock.monotonic() >= self._look_at.get(group, -math.inf):
            claimed = await self._look(session, group, limit)
        return claimed

    async def _look(self, session: Session, group: tuple[Lane, ...], limit: int) -> list[Claimed]:
        """At the store. Where there was something, the broker lacks more of it, and the next look comes at once."""
        claimed = await self._store.claim(session, group, limit)
        poll = self._engine.settings.poll.total_seconds()
        self._look_at[group] = self._clock.monotonic() + (0 if claimed else poll)
        return claimed

    async def _take(self, session: Session, lanes: list[Lane], limit: int) -> list[Claimed]:
        await self._look_for_holds()
        asked = self._unheld(lanes)
        for _ in range(ROUNDS if asked else 0):
            self._turn += 1
            start = self._turn % len(asked)
            in_turn = asked[start:] + asked[:start]
            hints = await self._broker.ask(lambda dispatch: dispatch.take(in_turn, limit))  # noqa: B023 - awaited here
            if not hints:
                break
            try:
                claimed = await self._store.claim_jobs(session, hints)
            except BaseException:
                await self._broker.ask(lambda dispatch: dispatch.put_back(hints))  # noqa: B023 - awaited here
                raise
            await self._broker.ask(lambda dispatch: dispatch.took(hints))  # noqa: B023 - awaited here
            if claimed:
                return claimed
        return []

    def _unheld(self, lanes: Sequence[Lane]) -> list[Lane]:
        return [lane for lane in lanes if self._holds.holding(lane) is None] if self._holds else list(lanes)

    async def _look_for_holds(self) -> None:
        now = self._clock.monotonic()
        if now >= self._holds_due:
            holds = await self._store.holds()
            self._holds = HoldIndex(holds) if holds else None
            self._holds_due = now + HOLDS_EVERY
            self._splits.clear()  # policies may have been read anew
            if len(self._sweep_at) > MOST_GROUPS:  # of lanes that were served before
                self._sweep_at.clear()
                self._look_at.clear()
