"""The engine's API beside a system: no rule of the system is passed by on any of its roads (H2 of the security report)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from fastapi import FastAPI

from holdfast import Forbidden, Holdfast, PayloadError
from holdfast.contrib.credits import Credits
from holdfast.engine.batches import do_batch
from holdfast.engine.tables import operations
from holdfast.jobs.job import JobId
from systems.converter import settings as converter_settings
from systems.converter import tasks as converter_tasks
from systems.converter.content import MAX_BYTES
from systems.converter.web.site import make_site as converter_site
from systems.grading import settings as grading_settings
from systems.grading import tasks as grading_tasks
from systems.grading.messages import LONGEST_TEXT
from systems.grading.web.site import make_site as grading_site
from systems.reports import settings as reports_settings
from systems.reports import tasks as reports_tasks
from systems.reports.prompt import LONGEST_INSTRUCTIONS
from systems.reports.web.site import make_site as reports_site
from systems.screenshots import settings as screenshots_settings
from systems.screenshots import tasks as screenshots_tasks
from systems.screenshots.web.site import make_site as screenshots_site
from tests.server.roads import (
    ALL,
    World,
    ask_by_message,
    enqueue,
    enqueue_batch,
    enqueue_deduped,
    enqueue_named,
    redrive,
    redrive_all,
    redrive_elsewhere,
    redrive_patched,
    retry,
    retry_all,
    retry_edited,
)

pytestmark = pytest.mark.anyio

#: Roads on which arguments come with the request.
CALLS = (enqueue, enqueue_named, enqueue_deduped, enqueue_batch, retry_edited)
#: Roads on which a job is run again as it is: any that has failed, dead letters, and all of many.
AGAIN = (retry, ask_by_message)
REDRIVES = (redrive, redrive_elsewhere)
OPERATIONS = (retry_all, redrive_all, redrive_patched)


class System(NamedTuple):
    app: Holdfast
    site: FastAPI
    root: str  #: where the engine's API is mounted


def converter(folder: Path, url: str) -> System:
    settings = converter_settings.Settings(
        database_url=url,
        uploads_dir=folder / "uploads",
        results_dir=folder / "results",
        session_key_file=folder / "session.key",
    )
    made = converter_tasks.build(settings)
    return System(made.app, converter_site(made), "/holdfast")


def grading(folder: Path, url: str) -> System:
    made = grading_tasks.build(grading_settings.Settings(database_url=url, audio_dir=folder / "audio"))
    return System(made.app, grading_site(made), "/holdfast")


def reports(folder: Path, url: str) -> System:
    settings = reports_settings.Settings(
        database_url=url,
        documents_url=(str(folder / "documents"),),
        reports_url=str(folder / "reports"),
        schemas_dir=folder / "schemas",
        watch_url=str(folder / "inbox"),
        documents_per_owner=True,
    )
    made = reports_tasks.build(settings)
    return System(made.app, reports_site(made), "/holdfast")


def screenshots(folder: Path, url: str) -> System:
    (folder / "holdfast.toml").write_text("")
    (folder / "sla.toml").write_text("")
    settings = screenshots_settings.Settings(
        database_url=url,
        images_dir=folder / "images",
        policies_file=folder / "holdfast.toml",
        sla_file=folder / "sla.toml",
    )
    made = screenshots_tasks.build(settings, open_browser=lambda: nullcontext(None))  # type: ignore[arg-type]
    return System(made.app, screenshots_site(made), "")


Args = dict[str, Any]
#: What each task of a system is called with. One that is not here takes nothing.
GOOD: dict[str, Args] = {
    "convert": {"mapping": "text", "name": "a.pdf", "size": 7},
    "grade": {"skill": "writing", "text": "Hello."},
    "report": {"source": "alice/a.txt", "schema": "invoice"},
    "SCREENSHOT": {"shot": {"url": "https://example.com/"}},
    "PDF_GENERATION": {"shot": {"url": "https://example.com/", "format": "pdf"}},
}
_SOUND = {"name": "019a8f6e-2a53-7cc1-9d0e-5f1c7a0b3d42.wav", "sha256": "0" * 64, "size": 7}


def _shots(task: str) -> list[tuple[str, Args, int]]:
    good = GOOD[task]["shot"]
    wrong: list[Args] = [
        {"url": "http://127.0.0.1/"},
        {"url": "http://169.254.169.254/latest/meta-data"},
        {"url": "http://[::1]/"},
        {"url": "https://example.com:22/"},
        {"url": "file:///etc/passwd"},
        {"url": "https://example.com/" + "a" * 4_096},
        {"format": "png" if task == "PDF_GENERATION" else "pdf"},  # each has a price of its own
        {"width": 99_999},
        {"delay": 3_600},
    ]
    return [(task, {"shot": good | one}, 422) for one in wrong]


#: Of each system: the task, arguments that break a rule of it, and how that is answered.
RULES: dict[Callable[[Path, str], System], list[tuple[str, Args, int]]] = {
    converter: [
        ("convert", GOOD["convert"] | {"mapping": "m" * 101}, 422),
        ("convert", GOOD["convert"] | {"name": "a\nb"}, 422),
        ("convert", GOOD["convert"] | {"name": "n" * 121}, 422),
        ("convert", GOOD["convert"] | {"size": MAX_BYTES + 1}, 422),
        ("convert", GOOD["convert"] | {"size": -1}, 422),
        ("convert", GOOD["convert"] | {"sha256": "../x"}, 422),
    ],
    grading: [
        ("grade", {"skill": "dancing", "text": "x"}, 422),
        ("grade", {"skill": "writing"}, 422),
        ("grade", {"skill": "writing", "text": "  "}, 422),
        ("grade", {"skill": "writing", "text": "a\x00b"}, 422),
        ("grade", {"skill": "writing", "text": "x" * (LONGEST_TEXT + 1)}, 422),
        ("grade", {"skill": "writing", "text": "x", "audio": _SOUND}, 422),
        ("grade", {"skill": "speaking", "text": "x"}, 422),
        ("grade", {"skill": "speaking", "audio": _SOUND | {"name": "../../etc/passwd"}}, 422),
        ("grade", {"skill": "speaking", "audio": _SOUND | {"size": 2**40}}, 422),
    ],
    reports: [
        ("report", GOOD["report"] | {"source": "bob/private-invoice.txt"}, 403),
        ("report", GOOD["report"] | {"source": "file://documents/bob/private-invoice.txt"}, 403),
        ("report", GOOD["report"] | {"source": "alice2/a.txt"}, 403),
        ("report", GOOD["report"] | {"source": "alice/../bob/a.txt"}, 422),
        ("report", GOOD["report"] | {"source": "s3://elsewhere/alice/a.txt"}, 422),
        ("report", GOOD["report"] | {"instructions": "x" * (LONGEST_INSTRUCTIONS + 1)}, 422),
    ],
    screenshots: [*_shots("SCREENSHOT"), *_shots("PDF_GENERATION")],
}
SYSTEMS = pytest.mark.parametrize("make", RULES, ids=lambda make: make.__name__)


@asynccontextmanager
async def opened(make: Callable[[Path, str], System], folder: Path, url: str) -> AsyncIterator[System]:
    system = make(folder, url)
    await system.app.migrate()
    async with system.site.router.lifespan_context(system.site):
        if make is screenshots:
            for account in ("alice", "bob"):
                await Credits.of(system.app).grant(account, 1_000_000)
        yield system


@asynccontextmanager
async def world_of(system: System, role: str, **options: Any) -> AsyncIterator[World]:
    secret = (await system.app.keys.create(role, owner="alice" if role == "owner" else None))[1]
    transport = httpx2.ASGITransport(app=system.site, client=("192.0.2.1", 4711))
    base, headers = f"http://systems{system.root}", {"Authorization": f"Bearer {secret}"}
    async with httpx2.AsyncClient(transport=transport, base_url=base, headers=headers) as client:
        args = {task: GOOD.get(task, {}) for task in system.app.tasks}
        yield World(system.app, client, args, "housekeeping", owner="alice", **options)


@SYSTEMS
async def test_owners_call_no_task_of_a_system_but_through_its_own_door(
    make: Callable[[Path, str], System], tmp_path: Path, sqlite_url: str
) -> None:  # E66
    async with opened(make, tmp_path, sqlite_url) as system, world_of(system, "owner") as world:
        assert system.app.tasks
        for task in system.app.tasks:  # those of the house too
            for road in ALL:
                answer, before, after = await world.observed(road, task)
                assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN"), (task, road)
                assert after == before, (task, road)


@SYSTEMS
async def test_no_rule_of_a_system_is_passed_by_on_any_road(
    make: Callable[[Path, str], System], tmp_path: Path, database_url: str
) -> None:  # E66
    """An operator may call any task, for any owner: the rules of the task hold for it too."""
    async with (
        opened(make, tmp_path, database_url) as system,
        world_of(system, "operator", named=True) as world,
    ):
        world.stored = dict(world.args)
        for task in {task for task, _, _ in RULES[make]}:
            for road in CALLS:
                assert (await road(world, task)).is_success, (task, road)
        for task, wrong, status in RULES[make]:
            world.args[task] = wrong
            for road in CALLS:
                answer, before, after = await world.observed(road, task)
                assert answer.status_code == status, (task, wrong, road, answer.text)
                assert answer.json()["code"] == {403: "FORBIDDEN", 422: "INVALID"}[status]
                assert after == before, (task, wrong, road)
            with pytest.raises({403: Forbidden, 422: PayloadError}[status]):
                await system.app.tasks[task].options(owner="alice").enqueue(**wrong)
            with pytest.raises({403: Forbidden, 422: PayloadError}[status]):
                await system.app.tasks[task].options(owner="alice").enqueue_many([wrong])


class OnRecord(World):
    """Its jobs are refused calls that were put on record."""

    async def job(self, task: str) -> JobId:
        return await self.app.tasks[task].reject(self.args[task], "REFUSED", owner=self.owner)


class OfOld(World):
    """Its jobs are dead letters of a time when the rules were others."""

    async def job(self, task: str) -> JobId:
        [row] = self.app.tasks[task].options(owner=self.owner)._jobs([self.args[task]], checked=False)
        await (await self.app.runtime.engine()).enqueue([row])
        await self.bury_all()
        return row.id


def test_every_road_is_tried() -> None:
    assert {*CALLS, *AGAIN, *REDRIVES, *OPERATIONS} == {*ALL}


@SYSTEMS
@pytest.mark.parametrize("kind", [OnRecord, OfOld])
async def test_what_the_rules_refuse_does_not_run_because_it_is_there(
    make: Callable[[Path, str], System], kind: type[World], tmp_path: Path, sqlite_url: str
) -> None:
    async with opened(make, tmp_path, sqlite_url) as system, world_of(system, "operator") as found:
        world = kind(found.app, found.client, found.args, found.queue, owner="alice", named=True)
        for task, wrong, status in RULES[make]:
            world.args[task] = wrong
            try:
                await world.job(task)
            except ValueError:  # it cannot even be stored: the message for its worker cannot be written
                assert (kind, make) == (OfOld, grading)
                continue
            except PayloadError:  # of the wrong shape altogether
                continue
            for road in AGAIN if kind is OnRecord else AGAIN + REDRIVES:
                answer, before, after = await world.observed(road, task)
                assert answer.status_code == status, (task, wrong, road, answer.text)
                assert after == before, (task, wrong, road)
            for road in OPERATIONS if kind is OfOld else ():
                answer = await road(world, task)
                if road is redrive_patched and answer.status_code == status:
                    continue  # the patch itself was refused
                assert answer.is_success, answer.text
                assert await _done_by_operations(system.app) == 0, (task, wrong, road)


async def _done_by_operations(app: Holdfast) -> int:
    """What a worker does of the newest operation."""
    engine = await app.runtime.engine()
    [newest] = await operations.newest(engine.store, 1)
    assert newest.matched > 0
    return (await do_batch(engine, newest, 100)).done
