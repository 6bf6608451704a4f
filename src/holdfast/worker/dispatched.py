"""The source of a worker's jobs when there is a broker: hints, whose jobs are claimed in the store.

```text
  broker available ────▶ take hints ──▶ claim_jobs ──▶ some jobs: done
                             │ none                        │ none: the hints were stale, take again
                             ▼                             ▼
                        claim from the store, once per poll; every `SWEEP_EVERY` seconds also when there are hints
  broker unavailable ──▶ claim from the store, as without a broker
```

No hints are taken for lanes that are held: they wait at the broker. A group with caps, and a trial of a
half-open breaker, are claimed from the store alone.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Protocol

from holdfast.engine.dispatcher import Dispatcher
from holdfast.engine.engine import Engine
from holdfast.engine.lane_store import Cap
from holdfast.engine.tables.holds import holds_in_force
from holdfast.jobs.job import Claimed, Lane, Session
from holdfast.jobs.lanes import HoldIndex

#: How often the store is claimed from although the broker has hints, in seconds: this finds jobs whose hints
#: were lost.
SWEEP_EVERY = 5.0
#: How often the holds are read, in seconds.
HOLDS_EVERY = 1.0
#: How many times one claim takes hints when all of them were stale.
ROUNDS = 20
MOST_GROUPS = 1000


class JobSource(Protocol):
    """Where a worker claims jobs. A store is one."""

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
    """Claims jobs by the hints of a broker, and from the store where the broker has none."""

    def __init__(self, engine: Engine, broker: Dispatcher) -> None:
        self._engine, self._store, self._broker, self._clock = engine, engine.store, broker, engine.clock
        #: When each group claims from the store next: although the broker has hints, and if it has none.
        self._sweep_at: dict[tuple[Lane, ...], float] = {}
        self._poll_at: dict[tuple[Lane, ...], float] = {}
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
        """Claim jobs like `Store.claim`, by the broker's hints for the lanes that it dispatches.

        Within a lane the order is by priority, then by time, and lanes take turns. Owners take no turns here:
        only the store knows whose turn it is.
        """
        if caps or trial or not self._broker.is_available:
            return await self._store.claim(session, lanes, limit, caps=caps, trial=trial)
        ours, others = self._split(lanes)
        claimed = await self._claim_dispatched(session, ours, limit) if ours else []
        if others and len(claimed) < limit:
            claimed += await self._store.claim(session, others, limit - len(claimed))
        return claimed

    async def wait_for_work(self, lanes: Sequence[Lane], timeout: float) -> None:
        """Wait for a hint or for a change in the store, up to *timeout* seconds."""
        ours, others = self._split(lanes) if self._broker.is_available else ([], list(lanes))
        if not ours:
            await self._store.wait_for_work(lanes, timeout)
            return
        waits = [asyncio.ensure_future(self._wait_for_hint(ours, timeout))]
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

    async def _wait_for_hint(self, lanes: list[Lane], timeout: float) -> None:
        unheld = self._unheld(lanes)
        if unheld:
            await self._broker.ask(lambda dispatch: dispatch.wait(unheld, timeout))
        if not unheld or not self._broker.is_available:
            await self._store.wait_for_work(lanes, timeout)

    def _split(self, lanes: Sequence[Lane]) -> tuple[list[Lane], list[Lane]]:
        """Return the lanes that the broker dispatches, and the others."""
        group = tuple(lanes)
        if group not in self._splits:
            dispatched = {lane: self._broker.hands_out(lane) for lane in lanes}
            ours = [lane for lane in lanes if dispatched[lane]]
            self._splits[group] = ours, [lane for lane in lanes if not dispatched[lane]]
        return self._splits[group]

    async def _claim_dispatched(self, session: Session, lanes: list[Lane], limit: int) -> list[Claimed]:
        group, now = tuple(lanes), self._clock.monotonic()
        if now >= self._sweep_at.get(group, -math.inf):
            self._sweep_at[group] = now + SWEEP_EVERY
            if claimed := await self._claim_from_store(session, group, limit):
                return claimed
        claimed = await self._claim_by_hints(session, lanes, limit)
        if not claimed and self._clock.monotonic() >= self._poll_at.get(group, -math.inf):
            claimed = await self._claim_from_store(session, group, limit)
        return claimed

    async def _claim_from_store(self, session: Session, group: tuple[Lane, ...], limit: int) -> list[Claimed]:
        """Claim from the store.

        If that brings jobs, the broker lacks hints, so the next claim asks the store again.
        """
        claimed = await self._store.claim(session, group, limit)
        poll = self._engine.settings.poll.total_seconds()
        self._poll_at[group] = self._clock.monotonic() + (0 if claimed else poll)
        return claimed

    async def _claim_by_hints(self, session: Session, lanes: list[Lane], limit: int) -> list[Claimed]:
        await self._refresh_holds()
        unheld = self._unheld(lanes)
        for _ in range(ROUNDS if unheld else 0):
            self._turn += 1
            start = self._turn % len(unheld)
            in_turn = unheld[start:] + unheld[:start]
            hints = await self._broker.ask(lambda dispatch: dispatch.take(in_turn, limit))  # noqa: B023 - awaited here
            if not hints:
                break
            try:
                claimed = await self._store.dispatch.claim_jobs(session, hints)
            except BaseException:
                await self._broker.ask(lambda dispatch: dispatch.put_back(hints))  # noqa: B023 - awaited here
                raise
            await self._broker.ask(lambda dispatch: dispatch.took(hints))  # noqa: B023 - awaited here
            if claimed:
                return claimed
        return []

    def _unheld(self, lanes: Sequence[Lane]) -> list[Lane]:
        return [lane for lane in lanes if self._holds.holding(lane) is None] if self._holds else list(lanes)

    async def _refresh_holds(self) -> None:
        now = self._clock.monotonic()
        if now >= self._holds_due:
            holds = await holds_in_force(self._store)
            self._holds = HoldIndex(holds) if holds else None
            self._holds_due = now + HOLDS_EVERY
            self._splits.clear()  # policies may have been reloaded
            if len(self._sweep_at) > MOST_GROUPS:  # most are of lanes that are no longer served
                self._sweep_at.clear()
                self._poll_at.clear()
