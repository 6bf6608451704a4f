"""How often PostgreSQL is asked for what callers do most: each statement more is a round trip they wait for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.domain.job import JobSpec, Lane, NewJob
from holdfast.domain.moves import State
from holdfast.stores.postgres import PostgresStore
from holdfast.wiring import SystemClock, SystemIds

LANE = Lane("default", "remind")


async def watched(url: str) -> tuple[PostgresStore, list[str]]:
    """A store, and what it asks from now on."""
    store = PostgresStore(url, SystemClock(), None)
    asked: list[str] = []
    connect = store._lines.connect

    async def logged(**settings: str) -> Any:
        connection = await connect(**settings)
        connection.add_query_logger(lambda record: asked.append(record.query))
        return connection

    store._lines.connect = logged  # type: ignore[method-assign]
    await store.migrate()
    await store.open()
    return store, asked


def due_later() -> NewJob:
    return NewJob(SystemIds().job_id(), "{}", JobSpec(lane=LANE, delay=timedelta(hours=1), max_attempts=3))


async def test_a_job_due_later_is_one_statement(postgres_url: str) -> None:  # E51
    store, asked = await watched(postgres_url)
    await store.enqueue([due_later()])  # its lane is new
    asked.clear()
    await store.enqueue([due_later()])
    assert len(asked) == 1
    await store.close()


async def test_a_cancel_is_a_look_and_a_move(postgres_url: str) -> None:  # E51
    store, asked = await watched(postgres_url)
    first, second = due_later(), due_later()
    await store.enqueue([first, second])
    await store.cancel(first.id, "ada", "")  # draws the first token
    asked.clear()
    await store.cancel(second.id, "ada", "")
    assert len(asked) == 2
    for job in (first, second):
        row = await store.job(job.id)
        assert row is not None
        assert row.state is State.CANCELLED
    await store.close()


async def test_a_claim_is_planned_once(postgres_url: str) -> None:  # E51
    store, _ = await watched(postgres_url)
    session = await store.open_session("anna", timedelta(minutes=1))
    for _ in range(8):  # the server decides after five whether it plans anew each time
        await store.enqueue([NewJob(SystemIds().job_id(), "{}", JobSpec(lane=LANE, max_attempts=3))])
        assert len(await store.claim(session, [LANE], 10)) == 1
    planned = "SELECT sum(generic_plans), sum(custom_plans) FROM pg_prepared_statements WHERE statement LIKE '-- claim:%'"
    async with store._lines.take("claim") as connection:
        [counts] = await connection.fetch(planned)
    assert tuple(counts) == (8, 0)
    await store.close()
