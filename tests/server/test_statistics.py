"""Statistics through the API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.access import Role
from holdfast.statistics.folding import fold
from tests.apps import work
from tests.server.test_jobs import call
from tests.server.world import House, new_app, new_house

pytestmark = pytest.mark.anyio


@pytest.fixture
def house(tmp_path: Path) -> House:
    return new_house(new_app(f"sqlite:///{tmp_path / 'jobs.db'}"))


async def run_jobs(house: House) -> None:
    async with house.app:
        for number in range(3):
            await house.app.tasks["note"].enqueue(str(number))
        await work(house.app, maintenance=False)
        while await fold((await house.app.runtime.engine()).store):
            pass


async def ask(house: House, name: str, **query: Any) -> Any:
    return await call(name, query=query, house=house)


async def test_the_routes_answer_what_happened(house: House) -> None:  # E66 E68a
    await run_jobs(house)
    async with house.app:
        overview = (await ask(house, "get_overview")).json()
        assert (overview["counts"]["completed"], overview["succeeded_at"], overview["lag_ms"]) == (
            3,
            {"1": 3},
            0,
        )
        assert overview["took"]["p95"] > 0
        series = (await ask(house, "get_series", metric="completed", since="5m", by="task")).json()
        assert (series["step"], len(series["at"])) == ("minute", 6)
        [line] = series["lines"]
        assert (line["name"], sum(line["values"])) == ("note", 3)
        [row] = (await ask(house, "get_breakdown", by="queue", since="1d")).json()["rows"]
        assert (row["name"], row["counts"]["enqueued"]) == ("default", 3)


@pytest.mark.parametrize(
    ("name", "query", "says"),
    [
        ("get_series", {"metric": "speed"}, "there is no metric 'speed'"),
        ("get_series", {"metric": "failed", "step": "week"}, "it is minute, hour or day"),
        ("get_breakdown", {"by": "owner"}, "by is 'owner'; it is one of queue, task, dependency, code"),
        ("get_overview", {"since": "1h", "until": "2h"}, "is not before until"),
        (
            "get_overview",
            {"since": "2026-13-04T00:00:00Z"},
            "since",
        ),
    ],
)
async def test_a_question_that_makes_no_sense_gets_a_clear_line(
    house: House, name: str, query: dict[str, str], says: str
) -> None:  # E66 E68a
    async with house.app:
        answer = await ask(house, name, **query)
        assert answer.status_code == 422
        assert says in answer.json()["detail"]


async def test_keys_of_owners_are_refused(house: House) -> None:  # E68a
    async with house.app:
        for name, query in (
            ("get_overview", {}),
            ("get_series", {"metric": "failed"}),
            ("get_breakdown", {"by": "task"}),
        ):
            answer = await call(name, query=query, role=Role.OWNER, as_owner="ann", house=house)
            assert answer.status_code == 403


async def test_the_memory_store_says_that_it_keeps_none() -> None:  # E68a
    answer = await ask(new_house(new_app()), "get_overview")
    assert answer.status_code == 422
    assert "the memory store keeps no statistics" in answer.json()["detail"]
