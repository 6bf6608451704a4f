"""What the simulated workers do: tasks that succeed, fail, hang, snooze, pay and call a gateway, as the seed has it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random

from holdfast import Fatal, Holdfast, Job, Retry, Retryable, Snooze
from holdfast.engine.context import THIS_JOB
from holdfast.jobs.job import JobId, NewJob
from holdfast.resilience.breaker import BreakerPolicy
from tests.simulation.ledger import Broken

POLICY = Retry(3, base="1s", factor=2, jitter="equal")


class Gateway:
    """A service that is sometimes down."""

    def __init__(self) -> None:
        self.down = False


class Work:
    """The tasks of one simulated app. A completed job's result is the epoch it ran under: so it can be told whose it is."""

    def __init__(
        self,
        chance: Random,
        counts: Counter[str],
        pace: float,
        new_id: Callable[[], JobId],
        fail: Callable[[AssertionError], None],
    ) -> None:
        self._chance, self._counts, self._pace, self._fail = chance, counts, pace, fail
        self._paid: set[JobId] = set()
        self.gateway = Gateway()
        self.app = app = Holdfast("memory://")
        app.runtime.new_id = new_id
        app.dependency(
            "gateway",
            breaker=BreakerPolicy(window=6, min_calls=3, cooldown="4s", trials=1, trials_to_close=1),
        )
        app.task(name="plain", retry=POLICY)(self._plain)
        app.task(name="timed", retry=POLICY, timeout="2s")(self._plain)
        app.task(name="sla", retry=POLICY, deadline="12s")(self._plain)
        app.task(name="serial", retry=POLICY)(self._plain)
        app.task(name="paying", retry=POLICY)(self._paying)
        app.task(name="calling", retry=POLICY, depends_on="gateway")(self._calling)

    def new_job(self, number: int) -> tuple[NewJob, str | None]:
        """A job of any kind, and the key it shares with others."""
        chance = self._chance
        name = chance.choice(["plain", "plain", "timed", "sla", "serial", "paying", "calling", "calling"])
        key = f"k{number % 2}" if name == "serial" else None
        delay = chance.choice([None, None, None, 3, 8])
        owner = chance.choice([None, None, "ann", "ben"]) if key is None else None
        sending = self.app.tasks[name].options(key=key, delay=delay, owner=owner)
        [job] = sending._jobs([{"number": number}])
        return job, key

    # -- handlers -----------------------------------------------------------------------------------------------------
    async def _work(self) -> None:
        """Some take longer than any lease."""
        await asyncio.sleep(self._chance.random() ** 4 * self._pace)
        roll = self._chance.random()
        if roll < 0.10:
            raise Retryable("try again")
        if roll < 0.16:
            raise ValueError("a bug of the handler")
        if roll < 0.20:
            raise Fatal("no use")
        if roll < 0.24:
            raise Snooze(2)

    async def _plain(self, number: int, *, job: Job = THIS_JOB) -> int:
        await self._work()
        return job.epoch

    async def _paying(self, number: int, *, job: Job = THIS_JOB) -> int:
        def pay() -> str:
            if job.id in self._paid:
                self._fail(Broken(f"{job.id} pays although that step was recorded (E40)"))
            self._counts["paid"] += 1
            return "paid"

        await job.step("pay", pay)
        self._paid.add(job.id)
        await self._work()
        return job.epoch

    async def _calling(self, number: int, *, job: Job = THIS_JOB) -> int:
        await asyncio.sleep(self._chance.random() * 0.5)
        if self.gateway.down:
            raise Retryable("the gateway is down")
        await self._work()
        return job.epoch
