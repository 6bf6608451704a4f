"""The road from the first schema to the newest: a database as version 0.1 has left it, with a job in every state."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg
import psycopg
import pytest

from holdfast import THIS_JOB, Holdfast, Job, Retry, State
from holdfast.stores.postgres import migrate as postgres
from holdfast.stores.sqlite import migrate as sqlite
from holdfast.stores.sqlite.connection import connect

pytestmark = pytest.mark.anyio

DONE, DEAD, WAITING = (f"0190a0b0-1111-7abc-8def-{n:012}" for n in (1, 2, 3))
FAILURE = '{"code":"BOOM","message":"It broke.","class":"unknown","detail":"","fingerprint":"cafe","gateway_status":null}'

SQLITE_ROWS = f"""
INSERT INTO holdfast_lane VALUES (1, 'default', 'ship');
INSERT INTO holdfast_session (id, worker, boot, ttl, started_at, expires_mono) VALUES (1, 'old', 'b', 90000000, 1000000, 0);
INSERT INTO holdfast_job (id, uid, lane, phase, prio, ord, run_at, created_at, queued_at, updated_at, max_attempts, max_crashes,
    version, payload, queued_event, epoch, attempt, session, started_at, claimed_at, finished_at, settle_event, result, error_code,
    error_message)
VALUES (1, '{DONE}', 1, 3, 0, 1, 1000000, 1000000, 1000000, 4000000, 3, 3, 1, '{{"order":1}}', 1, 2, 1, 1, 2000000, 2000000,
        4000000, 4, '"@not a reference"', NULL, NULL),
       (2, '{DEAD}', 1, 4, 0, 2, 1000000, 1000000, 1000000, 4000000, 1, 3, 1, '{{"order":2}}', 1, 3, 1, NULL, 2000000, 2000000,
        4000000, NULL, NULL, 'BOOM', 'It broke.'),
       (3, '{WAITING}', 1, 0, 0, 3, 1000000, 1000000, 1000000, 1000000, 3, 3, 1, '{{"order":3}}', 1, 0, 0, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL, NULL);
INSERT INTO holdfast_attempt VALUES (2, 3, 1, 1, 1, 2000000, 4000000, 'failed', '{FAILURE}', 5, 0);
INSERT INTO holdfast_dead_letter VALUES (2, 'BOOM', 'It broke.', '', 'cafe', 1, 4000000);
INSERT INTO holdfast_event VALUES
    (1, 1000000, 1, NULL, '[["{DONE}",0,0,null],["{DEAD}",0,0,null],["{WAITING}",0,0,null]]'),
    (2, 2000000, 2, NULL, '[["{DONE}",2,1,null]]'), (3, 2000000, 2, NULL, '[["{DEAD}",3,1,null]]'),
    (4, 4000000, 3, NULL, '[["{DONE}",2,1,null]]'), (5, 4000000, 5, '{DEAD}', '[["{DEAD}",3,1,null]]');
"""

POSTGRES_ROWS = f"""
INSERT INTO holdfast.lane (queue, task) VALUES ('default', 'ship');
INSERT INTO holdfast.session (worker, ttl, started_at, expires_at) VALUES ('old', '90s', '2026-01-01', '2026-01-01');
INSERT INTO holdfast.job (id, created_at, queued_seq, lane, prio, max_attempts, max_crashes, version, payload)
VALUES ('{DONE}', '2026-01-01', 1, 1, 0, 3, 3, 1, '{{"order":1}}'), ('{DEAD}', '2026-01-01', 1, 1, 0, 1, 3, 1, '{{"order":2}}'),
       ('{WAITING}', '2026-01-01', 1, 1, 0, 3, 3, 1, '{{"order":3}}');
INSERT INTO holdfast.ready (ord, id, lane, prio, attempt, crashes, generation) VALUES (1, '{WAITING}', 1, 0, 0, 0, 1);
INSERT INTO holdfast.done (job_id, state, epoch, session_id, claim_seq, settle_seq, started_at, finished_at, attempt, crashes,
                           generation, error_code, error_message, result)
VALUES ('{DONE}', 3, 1, 1, 2, 4, '2026-01-02', '2026-01-03', 1, 0, 1, NULL, NULL, '"@not a reference"'),
       ('{DEAD}', 4, 2, NULL, NULL, 5, NULL, '2026-01-03', 1, 0, 1, 'BOOM', 'It broke.', NULL);
INSERT INTO holdfast.attempt VALUES ('{DEAD}', 2, 1, 3, 5, '2026-01-02', '2026-01-03', 1, 1, false, 'failed', '{FAILURE}');
INSERT INTO holdfast.dead_letter VALUES ('{DEAD}', '2026-01-03', 1, 1, 'BOOM', 'It broke.', '', 'cafe');
INSERT INTO holdfast.event (seq, at, kind, job_ids, epochs, attempts, job_id)
VALUES (1, '2026-01-01', 1, '{{{DONE},{DEAD},{WAITING}}}', NULL, NULL, NULL), (2, '2026-01-02', 2, '{{{DONE}}}', '{{1}}', '{{1}}', NULL),
       (3, '2026-01-02', 2, '{{{DEAD}}}', '{{2}}', '{{1}}', NULL), (4, '2026-01-03', 3, '{{{DONE}}}', '{{1}}', '{{1}}', NULL),
       (5, '2026-01-03', 5, '{{{DEAD}}}', '{{2}}', '{{1}}', '{DEAD}');
SELECT setval('holdfast.epoch', 2);
"""


async def migrate_postgres(url: str) -> None:
    connection = await asyncpg.connect(url)
    await postgres.migrate(connection)
    await connection.close()


def left_by_version_0_1(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first schema alone, and rows in it."""
    with monkeypatch.context() as then:
        if url.startswith("sqlite"):
            path = url.removeprefix("sqlite:///")
            then.setattr(sqlite, "MIGRATIONS", sqlite.MIGRATIONS[:1])
            with closing(connect(path)) as file:
                sqlite.migrate(file, path)
            with closing(sqlite3.connect(path)) as file:
                file.executescript(SQLITE_ROWS)
        else:
            then.setattr(postgres, "MIGRATIONS", postgres.MIGRATIONS[:1])
            asyncio.run(migrate_postgres(url))
            with psycopg.connect(url) as connection:
                connection.execute(POSTGRES_ROWS.encode())


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.service)])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    found = f"sqlite:///{tmp_path}/jobs.db"
    if request.param == "postgres":
        found = request.getfixturevalue("empty_postgres")
    left_by_version_0_1(found, monkeypatch)
    return found


async def test_what_version_0_1_has_left_is_read_worked_on_and_purged(
    url: str, tmp_path: Path
) -> None:  # E42 E53
    app = Holdfast(url, poll="20ms", result_limit=100, artifacts=tmp_path / "results", keep_logs="always")

    @app.task(retry=Retry(2, base="1ms"))
    async def ship(order: int, *, job: Job = THIS_JOB) -> str:
        job.log("shipping", order=order)
        return f"{order:200}"

    ran = await app.migrate()
    assert ran == [
        name
        for number, name, _ in (sqlite if url.startswith("sqlite") else postgres).MIGRATIONS
        if number > 1
    ]
    async with app:
        done, dead = await app.job(DONE), await app.job(DEAD)
        assert (done.state, done.result, done.artifact) == (State.COMPLETE, "@not a reference", None)
        assert (dead.state, dead.error_code) == (State.FAILED, "BOOM")
        assert [attempt.logs for job_id in (DONE, DEAD) for attempt in await app.attempts(job_id)] == [(), ()]
        assert [event.kind for event in await app.events(job_id=DONE)] == ["queued", "processing", "complete"]
        await app.retry(DEAD)
        await app.run_worker(until_idle=True)
        for job_id, order in ((WAITING, 3), (DEAD, 2)):
            assert await app.result(job_id) == f"{order:200}"
            assert (await app.attempts(job_id))[-1].logs[0].endswith(f"INFO shipping order={order}")
        assert await (await app.engine()).store.violations() == []
        assert await app.purge(jobs=0) == 3
        assert await app.counts() == dict.fromkeys(State, 0)
