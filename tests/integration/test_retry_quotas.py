"""Quotas of manual retries from the policy file, for everyone who retries a job of an owner."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Conflict, Fatal, Holdfast, QuotaExceeded, State, new_job_id
from holdfast.engine.operation import Progress
from holdfast.jobs.job import JobSpec, Lane, NewJob
from holdfast.jobs.precondition import Precondition
from holdfast.webhooks.selection import QUEUE, TASK
from tests.apps import SOON, Database, new_app, until, work, working

pytestmark = pytest.mark.anyio

POLICIES = """
[quotas.default]
manual_retries_per_day = 2
[quotas.free]
[quotas.team]
manual_retries_per_month = 3
[owners.eve]
quota = "free"
[owners.acme]
quota = "team"
"""


@pytest.fixture
def app(db: Database, tmp_path: Path) -> Holdfast:
    file = tmp_path / "policies.toml"
    file.write_text(POLICIES, encoding="utf-8")
    app = new_app(db.url, policies=file)

    @app.task
    async def send(number: int = 1) -> None:
        raise Fatal("never")

    return app


async def failed(app: Holdfast, owner: str | None = "ann", count: int = 1) -> list[str]:
    jobs = await app.tasks["send"].options(owner=owner).enqueue_many(range(count))
    await work(app)
    return [job.id for job in jobs]


async def used(app: Holdfast, owner: str = "ann") -> tuple[float, float]:
    use = (await app.queues.owner(owner)).manual_retries
    return use.day.used, use.month.used


async def test_a_retry_counts_for_the_owner_of_the_job_whoever_retries_it(app: Holdfast) -> None:  # E18 E33
    async with app:
        first, second, third = await failed(app, count=3)
        await app.jobs.retry(first, by="ann")
        await app.dead_letters.redrive_one(second, by="operator")
        with pytest.raises(QuotaExceeded) as refused:
            await app.jobs.retry(third, by="operator")
        assert (refused.value.owner, refused.value.quota) == ("ann", "manual_retries_per_day")
        with pytest.raises(QuotaExceeded):
            await app.dead_letters.redrive_one(third)
        assert await app.dead_letters.count() == 1
        assert await used(app) == (2, 0)
        shown = (await app.queues.owner("ann")).manual_retries
        assert (shown.day.limit, shown.month.limit) == (2, None)


async def test_the_retry_of_a_member_counts_for_its_organization_too(app: Holdfast) -> None:  # E18
    async with app:
        anns, bobs = await failed(app, "acme/ann", 2), await failed(app, "acme/bob", 2)
        for job_id in (*anns, bobs[0]):
            await app.jobs.retry(job_id)
        with pytest.raises(QuotaExceeded) as refused:
            await app.jobs.retry(bobs[1])
        assert (refused.value.owner, refused.value.quota) == ("acme", "manual_retries_per_month")
        assert await used(app, "acme") == (0, 3)
        assert await used(app, "acme/bob") == (1, 0)


async def test_jobs_without_a_quota_or_an_owner_are_retried_without_limit(app: Holdfast) -> None:  # E18
    async with app:
        for owner in ("eve", None):
            for job_id in await failed(app, owner, 3):
                await app.jobs.retry(job_id)
        assert await used(app, "eve") == (0, 0)


async def test_an_operation_retries_what_the_quota_of_each_owner_allows(app: Holdfast) -> None:  # E18 E66
    async with app:
        await failed(app, "ann", 3)
        await failed(app, "bob", 1)
        async with working(app):
            begun = await app.operations.begin("retry", task="send")
            await until(lambda: _is_done(app, begun.id))
        ended = await app.operations.get(begun.id)
        assert (ended.done, ended.refused) == (3, 1)
        assert await used(app, "ann") == (2, 0)


async def _is_done(app: Holdfast, operation_id: str) -> bool:
    return (await app.operations.get(operation_id)).progress is Progress.DONE


async def test_a_redrive_of_many_leaves_the_dead_letters_beyond_the_quota(app: Holdfast) -> None:  # E18 E34
    async with app:
        await failed(app, "ann", 3)
        await failed(app, "bob", 1)
        assert await app.dead_letters.redrive() == 3
        [left] = await app.dead_letters.list()
        assert (await app.jobs.get(left.id)).owner == "ann"


async def test_automatic_retries_use_no_quota(app: Holdfast) -> None:  # E18
    @app.task(retry=SOON)
    async def flaky() -> None:
        raise ConnectionError("the other side is gone")

    async with app:
        job = await flaky.options(owner="ann").enqueue()
        await until(lambda: _has_ended(app, job.id))
        assert len(await app.jobs.attempts(job.id)) == 3
        assert await used(app) == (0, 0)


async def _has_ended(app: Holdfast, job_id: str) -> bool:
    await work(app)
    return (await app.jobs.get(job_id)).state is State.FAILED


async def test_the_retry_of_a_job_of_the_engine_uses_no_quota_of_its_owner(app: Holdfast) -> None:  # E18
    async with app:
        store = (await app.runtime.engine()).store
        spec = JobSpec(lane=Lane(QUEUE, TASK), owner="ann", max_attempts=3)
        await store.enqueue([NewJob(new_job_id(), "{}", spec)])
        [job] = (await app.jobs.list(internal=True)).rows
        await app.jobs.cancel(job.id)
        await app.jobs.retry(job.id)
        assert await used(app) == (0, 0)


async def test_a_call_that_is_sent_again_is_counted_once(app: Holdfast) -> None:  # E6 E18
    async with app:
        [job_id] = await failed(app)
        for _ in range(2):
            await app.jobs.retry(job_id, precondition=Precondition(token="call-1"))
        with pytest.raises(Conflict):
            await app.jobs.retry(job_id)
        assert (await app.jobs.get(job_id)).state is State.QUEUED
        assert await used(app) == (1, 0)
