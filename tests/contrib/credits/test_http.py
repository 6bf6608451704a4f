"""Jobs that are sold, through the API: whoever cannot pay is told what is missing."""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from holdfast.contrib.credits import Credits
from holdfast.engine.access import Role
from tests.server.world import API, House, new_app, new_house

pytestmark = pytest.mark.anyio


@pytest.fixture
def app() -> Holdfast:
    app = new_app(extensions=[Credits()])

    @app.task(extra={"price": 3})
    async def shoot(url: str) -> str:
        return url

    return app


async def ask(house: House, owner: str = "alice", **more: object) -> tuple[int, dict[str, object], str]:
    body = {"task": "shoot", "args": {"url": "a"}, "owner": owner, **more}
    async with house.client(headers=await house.as_(Role.ADMIN)) as client:
        answer = await client.post(f"{API}/jobs", json=body)
    return answer.status_code, answer.json(), answer.headers.get("retry-after", "")


async def test_without_credits_nothing_is_enqueued_and_what_is_missing_is_said(
    app: Holdfast,
) -> None:  # S3 E66
    house = new_house(app)
    async with app:
        await Credits.of(app).grant("alice", 4)
        assert (await ask(house))[0] == 201
        status, told, _ = await ask(house)
        assert (status, told["code"], told["required"], told["available"]) == (
            402,
            "INSUFFICIENT_CREDITS",
            3,
            1,
        )
        assert await app.jobs.count(task="shoot") == 1
