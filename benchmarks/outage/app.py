"""The app of the workers: one task, which calls the service."""

from __future__ import annotations

import os

import httpx2

from holdfast import THIS_JOB, Holdfast, Job, Retry
from holdfast.resilience.breaker import BreakerPolicy

app = Holdfast()
app.dependency("gateway", breaker=BreakerPolicy(cooldown=os.environ.get("OUTAGE_COOLDOWN", "30s")))


@app.lifespan
async def client():  # type: ignore[no-untyped-def]
    async with httpx2.AsyncClient(timeout=5) as made:
        yield made


@app.task(depends_on="gateway", retry=Retry(10, base="1s", cap="30s", jitter="full"))
async def convert(number: int, *, job: Job = THIS_JOB) -> int:
    answer = await job.resources.get(f"{os.environ['OUTAGE_SERVICE']}/{number}")
    answer.raise_for_status()
    return number
