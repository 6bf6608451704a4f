"""How often PostgreSQL is asked for what callers do most: each statement more is a round trip they wait for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from devservices.postgres import Postgres
from holdfast import Holdfast
from holdfast.engine.lane_store import DependencyReport
from holdfast.jobs.job import JobSpec, Lane, NewJob
from holdfast.jobs.lanes import Dependency
from holdfast.jobs.moves import State
from holdfast.stores.postgres import PostgresStore
from holdfast.wiring import SystemClock, SystemIds

LANE = Lane("default", "remind")


class Watched(PostgresStore):
    """*asked* is what its callers wait for."""

    def __init__(self, url: str) -> None:
        super().__init__(url, SystemClock(), None)
        self.asked: list[str] = []
        self._connect = self._connections.connect
        self._connections.connect = self._logged  # type: ignore[method-assign]

    async def _logged(self, **settings: str) -> Any:
        connection = await self._connect(**settings)
        connection.add_query_logger(self._note)
        return connection

    def _note(self, record: asyncpg.connection.LoggedQuery) -> None:
        if "NOTIFY" not in record.query:  # nobody waits for that
            self.asked.append(record.query)


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[Watched]:
    store = Watched(postgres_url)
    await store.open()
    yield store
    await store.close()


def due_later() -> NewJob:
    return NewJob(SystemIds().job_id(), "{}", JobSpec(lane=LANE, delay=timedelta(hours=1), max_attempts=3))


async def test_to_open_it_takes_four_statements(store: Watched) -> None:  # E51
    assert len(store.asked) == 4  # its schema, its settings, its event numbers, its lanes


async def test_a_job_due_later_is_one_statement(store: Watched) -> None:  # E51
    await store.enqueue([due_later()])  # its lane is new
    store.asked.clear()
    await store.enqueue([due_later()])
    assert len(store.asked) == 1


async def test_a_cancel_is_a_look_and_a_move(store: Watched) -> None:  # E51
    first, second = due_later(), due_later()
    await store.enqueue([first, second])
    await store.cancel(first.id, "ada", "")  # draws the first token
    store.asked.clear()
    await store.cancel(second.id, "ada", "")
    assert len(store.asked) == 2
    for job in (first, second):
        row = await store.queries.job(job.id)
        assert row is not None
        assert row.state is State.CANCELLED


async def test_only_a_quota_of_manual_retries_makes_a_retry_read_and_write_more(
    store: Watched, tmp_path: Path
) -> None:  # E18 E51
    counts = []
    for quota in ("", "[quotas.default]\nper_day = 5\n", "[quotas.default]\nmanual_retries_per_day = 5\n"):
        file = tmp_path / "holdfast.toml"
        file.write_text(quota)
        app = Holdfast(store.url, store=store, policies=file)
        engine = await app.runtime.engine()
        job = NewJob(SystemIds().job_id(), "{}", JobSpec(lane=LANE, owner="ann", max_attempts=3))
        await engine.store.enqueue([job])
        await engine.store.cancel(job.id, "ada", "")
        store.asked.clear()
        await app.jobs.retry(job.id)
        counts.append(len(store.asked))
    assert counts == [8, 8, 10]  # the job's owner, and the charge


async def test_a_report_is_one_statement_with_news_and_without(store: Watched) -> None:  # E20
    session = await store.open_session("anna", timedelta(minutes=1))
    report = DependencyReport(Dependency("gateway"), 0, True, 20, 3, 0.25, calls=10, failures=4)
    await store.lanes.report(session, [report])
    for seen in (report._replace(calls=11), report._replace(calls=11)):
        store.asked.clear()
        [state] = await store.lanes.report(session, [seen])
        assert (state.calls, state.votes, len(store.asked)) == (11, 1, 1)


async def test_a_claim_is_planned_once(store: Watched) -> None:  # E51
    session = await store.open_session("anna", timedelta(minutes=1))
    for _ in range(8):  # the server decides after five whether it plans anew each time
        await store.enqueue([NewJob(SystemIds().job_id(), "{}", JobSpec(lane=LANE, max_attempts=3))])
        assert len(await store.claim(session, [LANE], 10)) == 1
    planned = "SELECT sum(generic_plans), sum(custom_plans) FROM pg_prepared_statements WHERE statement LIKE '-- claim:%'"
    async with store._connections.take("claim") as connection:
        [counts] = await connection.fetch(planned)
    assert tuple(counts) == (8, 0)


async def test_a_pooler_asks_for_nothing_more(
    postgres: Postgres, postgres_url: str, pgbouncer_url: str
) -> None:  # E51
    database = postgres_url.rpartition("/")[2]
    postgres.execute(f"ALTER DATABASE {database} SET log_statement = 'all'")
    store = Watched(pgbouncer_url)
    await store.open()
    await store.enqueue([due_later()])
    before = len(postgres.log)
    await store.enqueue([due_later()])
    said = postgres.log[before:]
    assert said.count("-- enqueue") == 1
    assert "client_encoding" not in said
    await store.close()
