"""Notes on jobs as an app makes them: told to hooks in their transaction, and made once by however many processes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast, UnknownJob, UsageError
from tests.apps import Database, kinds, new_app

pytestmark = pytest.mark.anyio


@pytest.fixture
def app(db: Database) -> Holdfast:
    app = new_app(db.url)
    app.task(name="shoot")(_nothing)
    return app


async def _nothing() -> None: ...


async def test_many_processes_that_note_the_same_at_once_have_noted_it_once(
    app: Holdfast, db: Database
) -> None:  # E76 E6
    others = [new_app(db.url) for _ in range(3)]
    async with app, others[0], others[1], others[2]:
        ids = [(await app.tasks["shoot"].enqueue()).id for _ in range(10)]
        for job_id in ids:
            notes = [one.events.note(job_id, "breached", name="SUCCESS", credits=5) for one in (app, *others)]
            assert sorted(await asyncio.gather(*notes)) == [False, False, False, True]
            assert await kinds(app, job_id) == ["queued", "breached"]


async def test_a_note_without_an_event_loop_is_the_same(app: Holdfast) -> None:  # E76
    async with app:
        job_id = (await app.tasks["shoot"].enqueue()).id
        assert await asyncio.to_thread(
            lambda: app.sync.events.note(job_id, "compensated", name="x", credits=1)
        )
        assert await kinds(app, job_id) == ["queued", "compensated"]
    app.runtime.portal.close()


@pytest.mark.parametrize(
    ("kind", "said", "words"),
    [
        ("complete", {}, "nothing is noted as 'complete'; it is one of breached, compensated"),
        ("breached", {"name": ""}, "name is ''; it is a text of 1 to 500 printable characters"),
        ("breached", {"why": object()}, "a note cannot be stored as JSON"),
        ("breached", {"why": "x" * 5_000}, "a note has at most 4,000 bytes, not 5,0"),
        ("breached", {"token": "x"}, "a note cannot say 'token': events use this word themselves"),
    ],
)
async def test_what_cannot_be_noted_is_told_in_one_line(
    app: Holdfast, kind: str, said: dict[str, Any], words: str
) -> None:  # E76
    async with app:
        job_id = (await app.tasks["shoot"].enqueue()).id
        with pytest.raises(UsageError) as refused:
            await app.events.note(job_id, kind, **({"name": "SUCCESS"} | said))
        assert words in str(refused.value)
        assert "\n" not in str(refused.value)
        assert await kinds(app, job_id) == ["queued"]
        with pytest.raises(UnknownJob):
            await app.events.note("nobody", "breached", name="SUCCESS")
