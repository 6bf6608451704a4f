"""What handlers report of their cost."""

from __future__ import annotations

import pytest

from holdfast import THIS_JOB, Job, Snooze, UsageError
from tests.apps import SOON, Database, new_app, work


async def test_a_handler_adds_to_the_cost_of_its_task_in_every_attempt(db: Database) -> None:  # E8 E68a
    app = new_app(db.url)

    @app.task(retry=SOON, cost=2.0)
    async def ask(*, job: Job = THIS_JOB) -> float:
        job.add_cost(0.25 * job.attempt)
        job.add_cost(0)
        if job.attempt == 1:
            raise RuntimeError("once more")
        return job.cost

    async with app:
        handle = await ask.enqueue()
        await work(app)
        assert (await app.jobs.get(handle.id)).result == 2.5
        assert [attempt.cost for attempt in await app.jobs.attempts(handle.id)] == [2.25, 2.5]
        costs = [event.meta.get("cost") for event in await app.events.list(job_id=handle.id)]
        assert costs == [None, None, 2.25, None, 2.5]


async def test_a_released_attempt_costs_only_what_its_handler_added(db: Database) -> None:  # E8
    app = new_app(db.url)

    @app.task(cost=2.0)
    async def ask(*, job: Job = THIS_JOB) -> None:
        if job.epoch == first.setdefault("epoch", job.epoch):
            job.add_cost(0.5)
            raise Snooze("1ms")

    first: dict[str, int] = {}
    async with app:
        handle = await ask.enqueue()
        await work(app)
        assert [attempt.cost for attempt in await app.jobs.attempts(handle.id)] == [0.5, 2.0]


async def test_a_handlers_own_transaction_ends_with_its_cost(db: Database) -> None:  # E8
    app = new_app(db.url)

    @app.task
    async def ask(*, job: Job = THIS_JOB) -> None:
        job.add_cost(0.5)
        async with job.transaction():
            pass

    async with app:
        handle = await ask.enqueue()
        await work(app)
        assert [attempt.cost for attempt in await app.jobs.attempts(handle.id)] == [1.5]


@pytest.mark.parametrize("amount", [-1, "1", float("nan"), float("inf"), None, True])
async def test_a_cost_that_is_no_number_is_refused(db: Database, amount: float) -> None:  # E8
    app = new_app(db.url)
    refused = []

    @app.task
    async def ask(*, job: Job = THIS_JOB) -> None:
        with pytest.raises(UsageError, match="it is a number, 0 to 1e\\+09") as error:
            job.add_cost(amount)
        refused.append(error)

    async with app:
        await ask.enqueue()
        await work(app)
    assert len(refused) == 1
