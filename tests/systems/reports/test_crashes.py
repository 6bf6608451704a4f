"""A worker is killed between every two steps: every report ends once, and no recorded answer is paid for again."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from holdfast import State
from systems.reports.records import open_records
from systems.reports.samples import invoice
from tests.systems.provider.providers import ROOT, RunningProvider
from tests.systems.reports.crashing import POINTS
from tests.systems.reports.world import World

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(240)]

#: Where the answer is lost with the worker: it was given, and not recorded.
ASKED_TWICE = "crash before llm"


async def test_a_crash_between_any_two_steps_ends_in_one_report_paid_once(
    tmp_path: Path, database_url: str, provider: RunningProvider
) -> None:  # P1 P3 E5 E40
    world = World(tmp_path, database_url, provider, model_api_key="sk-canary-0123456789")
    async with world.app, open_records(database_url) as records:
        jobs = {}
        for number, point in enumerate(POINTS):
            source = world.put(f"{number}.txt", invoice(number))
            handle = await world.reports.report.enqueue(source, "invoice", instructions=point)
            jobs[point] = handle.id
        crashing = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.systems.reports.crashing", cwd=ROOT, env=environment(world)
        )
        try:
            async with asyncio.timeout(150):
                assert await crashing.wait() == 0
        except TimeoutError:
            crashing.kill()
            stuck = [row for row in (await world.app.jobs.list()).rows if row.state is not State.COMPLETE]
            raise AssertionError(f"these have not ended: {stuck}") from None
        called = Counter(call["client_request_id"] for call in provider.calls())
        for number, (point, job_id) in enumerate(jobs.items()):
            row = await world.app.jobs.get(job_id)
            committed = point == "crash after commit"
            assert (point, row.state, row.attempt) == (point, State.COMPLETE, 1 if committed else 2)
            assert called[f"{job_id}-1"] == (2 if point == ASKED_TWICE else 1), point
            assert json.loads(world.report_of(row))["invoice_number"] == f"A-{number:05}"
            ends = [
                e.kind for e in await world.app.events.list(job_id=job_id) if e.kind in ("complete", "failed")
            ]
            assert ends == ["complete"]
        assert len(list(world.out.iterdir())) == len(POINTS)
        rows = await records.database.run("SELECT job_id, count(*) FROM reports_call GROUP BY job_id")
        assert sorted(rows) == sorted((job_id, 1) for job_id in jobs.values())


def environment(world: World, **more: str) -> dict[str, str]:
    settings = world.settings
    return {
        **os.environ,
        "DATABASE_URL": settings.database_url,
        "DOCUMENTS_URL": ",".join(settings.documents_url),
        "REPORTS_URL": settings.reports_url,
        "SCHEMAS_DIR": str(settings.schemas_dir),
        "MODEL_URL": settings.model_url,
        "MODEL_API_KEY": settings.model_api_key,
        "RETRY_FIRST_MS": "10",
        "CIRCUIT_WINDOW": "1000",
        "CIRCUIT_FAIL_THRESHOLD": "1",
        "WORKER_LEASE_TTL_SEC": "5",
        "HOLDFAST_LOG_LEVEL": "error",
        **more,
    }
