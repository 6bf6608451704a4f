"""`explain`, `lanes`, `breakers`, `queues` and `schedules` from the command line, on a real SQLite file."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from holdfast import Holdfast
from holdfast.cli import main
from holdfast.engine.tables import ticks as schedule_ticks
from holdfast.jobs.job import JobId

Capture = pytest.CaptureFixture[str]
URL = "sqlite:///shop.db"

APP = f"""
from holdfast import Cron, Every, Holdfast

app = Holdfast({URL!r})

@app.schedule(Cron("0 7 * * mon-fri", zone="Europe/Berlin"))
@app.task
async def report() -> None: ...

app.schedule(report, Every("5m"), name="often")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "240")  # so that no cell is folded
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield tmp_path
    structlog.reset_defaults()


def with_app(do: Callable[[Holdfast], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        app = Holdfast(URL)
        async with app:
            return await do(app)

    return asyncio.run(run())


@pytest.fixture
def ids() -> list[str]:
    """Two mails that wait for the gateway, one that is due in an hour, and one job of another task."""

    async def fill(app: Holdfast) -> list[str]:
        async def send(to: str) -> None: ...
        async def sweep() -> None: ...

        mail = app.task(queue="mail", depends_on="gateway")(send)
        handles = [*await mail.enqueue_many(["ann", "bob"]), await mail.options(delay="1h").enqueue("eve")]
        return [handle.id for handle in [*handles, await app.task(sweep).enqueue()]]

    found: list[str] = with_app(fill)
    return found


def answer(capsys: Capture, *command: str) -> Any:
    """What `--json` prints."""
    assert main([*command, "--url", URL, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def said(capsys: Capture, *command: str, code: int = 0) -> str:
    """What people read."""
    assert main([*command, "--url", URL]) == code
    out, err = capsys.readouterr()
    return out + err


# -- explain ----------------------------------------------------------------------------------------------------------
def test_explain_says_it_in_one_sentence(ids: list[str], capsys: Capture) -> None:  # E28 E67
    text = said(capsys, "explain", ids[1])
    assert text.splitlines()[0].startswith("No live worker serves queue 'mail'; start `holdfast worker`")
    assert "1 job is ahead of it in its lane mail/send@gateway." in text


def test_explain_tells_programs_a_code_the_facts_and_the_moment(
    ids: list[str], capsys: Capture
) -> None:  # E28 E67
    assert main(["queues", "pause", "mail", "--for", "10m", "--reason", "deploy", "--url", URL]) == 0
    capsys.readouterr()
    found = answer(capsys, "explain", ids[2])
    assert found["reason"] == "no_worker"
    assert found["expected_at"] is None
    waits = {wait["reason"]: wait for wait in found["facts"]["waits"]}
    assert waits.keys() == {"no_worker", "paused", "due_later"}
    assert "deploy" in waits["paused"]["text"]
    assert waits["due_later"]["until"] == found["facts"]["run_at"]


def test_an_unknown_job_cannot_be_explained(ids: list[str], capsys: Capture) -> None:  # E28
    text = said(capsys, "explain", "nobody", code=4)
    assert text.startswith("holdfast: ")
    assert "nobody" in text


# -- pages ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("command", "rows", "name"), [("lanes", "lanes", "label"), ("queues", "queues", "name")]
)
def test_lists_of_lanes_and_queues_are_read_in_pages(
    capsys: Capture, command: str, rows: str, name: str
) -> None:  # E25 E67
    async def fill(app: Holdfast) -> None:
        async def sweep() -> None: ...

        task = app.task(sweep)
        for number in range(120):
            await task.options(queue=f"queue {number:03}").enqueue()

    with_app(fill)
    list_ = ["queues", "list"] if command == "queues" else ["lanes"]
    first = answer(capsys, *list_)
    assert len(first[rows]) == 100
    assert first["next"] == first[rows][-1][name]
    rest = answer(capsys, *list_, "--after", first["next"])
    assert (len(rest[rows]), rest["next"]) == (20, None)
    assert f"--after '{first['next']}'" in said(capsys, *list_)


# -- lanes ------------------------------------------------------------------------------------------------------------
def test_lanes_show_what_waits_and_what_holds_it(ids: list[str], capsys: Capture) -> None:  # E24 E67
    said(
        capsys, "queues", "pause", "gateway", "--kind", "dependency", "--by", "ann", "--reason", "they asked"
    )
    lanes = {lane["label"]: lane for lane in answer(capsys, "lanes")["lanes"]}
    assert {label: lane["waiting"] for label, lane in lanes.items()} == {
        "default/sweep": 1,
        "mail/send@gateway": 3,
    }
    assert lanes["default/sweep"]["held"] is None
    held = lanes["mail/send@gateway"]["held"]
    assert (held["kind"], held["name"], held["by"], held["reason"]) == (
        "dependency",
        "gateway",
        "ann",
        "they asked",
    )
    assert "dependency gateway by ann, until resumed: they asked" in said(capsys, "lanes")


def test_without_jobs_there_are_no_lanes_and_no_queues(capsys: Capture) -> None:
    with_app(lambda app: app.jobs.counts())
    assert said(capsys, "lanes") == "No lane was used yet.\n"
    assert said(capsys, "queues") == "No queue was used yet.\n"
    assert said(capsys, "breakers") == "No dependency was called yet.\n"
    assert said(capsys, "schedules").startswith("No schedules")


# -- queues -----------------------------------------------------------------------------------------------------------
def test_queues_are_listed_with_who_serves_them(ids: list[str], capsys: Capture) -> None:  # E67
    assert answer(capsys, "queues") == answer(capsys, "queues", "list")
    queues = {queue["name"]: queue for queue in answer(capsys, "queues")["queues"]}
    assert {name: (queue["waiting"], queue["tasks"]) for name, queue in queues.items()} == {
        "default": (1, ["sweep"]),
        "mail": (3, ["send"]),
    }
    assert queues["mail"]["workers"] == 0


def test_a_queue_is_paused_and_resumed(ids: list[str], capsys: Capture) -> None:  # E27 E67
    paused = answer(capsys, "queues", "pause", "mail", "--for", "10m", "--reason", "deploy", "--by", "ann")
    assert (paused["kind"], paused["name"], paused["by"], paused["reason"]) == (
        "queue",
        "mail",
        "ann",
        "deploy",
    )
    assert paused["until"] > paused["at"]
    assert "queue mail by ann, for " in said(capsys, "queues")
    assert answer(capsys, "queues", "resume", "mail")["resumed"] is True
    assert said(capsys, "queues", "resume", "mail") == "queue mail was not paused\n"
    assert with_app(lambda app: app.queues.holds()) == []


def test_who_is_not_named_is_the_user(ids: list[str], capsys: Capture) -> None:  # E27
    assert (
        said(capsys, "queues", "pause", "mail")
        == "queue mail is paused until it is resumed; running jobs continue\n"
    )
    [held] = with_app(lambda app: app.queues.holds())
    assert held.by.startswith("cli")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["queues", "pause", "mial"], "no queue named 'mial'; did you mean mail?"),
        (["queues", "resume", "mial"], "did you mean mail?"),
        (
            ["queues", "pause", "x", "--kind", "lane"],
            "no lane named 'x'; there are: default/sweep, mail/send@gateway",
        ),
        (["queues", "pause", "delayd", "--kind", "maintenance"], "did you mean delayed?"),
        (["queues", "pause", "mail", "--kind", "kue"], "kind is 'kue'; it is one of queue, task"),
        (["queues", "pause", "mail", "--for", "soon"], "'soon' is not a duration"),
        (["breakers", "open", "gatway"], "no dependency named 'gatway'; did you mean gateway?"),
        (["schedules", "pause", "nightly"], "no schedule named 'nightly'; there are none"),
    ],
)
def test_an_unknown_name_is_answered_with_the_near_ones(
    ids: list[str], capsys: Capture, command: list[str], words: str
) -> None:  # E27 E67
    text = said(capsys, *command, code=2)
    assert words in text
    assert len(text.splitlines()) == 1


# -- breakers ---------------------------------------------------------------------------------------------------------
def test_a_breaker_is_opened_and_closed_by_hand(ids: list[str], capsys: Capture) -> None:  # E20 E67
    opened = answer(
        capsys, "breakers", "open", "gateway", "--for", "10m", "--reason", "they migrate", "--by", "ann"
    )
    assert opened["state"] == "open"
    [shown] = answer(capsys, "breakers")["breakers"]
    assert (shown["dependency"], shown["state"], shown["version"]) == ("gateway", "open", 1)
    assert shown["next_trial_at"] == opened["next_trial_at"]
    assert "open" in said(capsys, "breakers")
    waits = answer(capsys, "explain", ids[0])["facts"]["waits"]
    assert "breaker_open" in [wait["reason"] for wait in waits]
    assert "is open already" in said(capsys, "breakers", "open", "gateway", code=3)
    assert said(capsys, "breakers", "close", "gateway") == "the breaker of gateway is closed\n"
    assert "is closed already" in said(capsys, "breakers", "close", "gateway", code=3)
    events = with_app(lambda app: app.events.list())
    told = [(event.kind, event.meta) for event in events if event.kind.startswith("breaker")]
    assert told[0] == ("breaker_opened", {"dependency": "gateway", "by": "ann", "reason": "they migrate"})
    assert told[1][0] == "breaker_closed"


def test_an_opened_breaker_holds_its_lanes_and_a_closed_one_lets_them_go(ids: list[str]) -> None:  # E20 E24
    async def work(app: Holdfast) -> list[str]:
        async def send(to: str) -> None: ...
        async def sweep() -> None: ...

        app.task(queue="mail", depends_on="gateway")(send)
        app.task(sweep)
        await app.breakers.open("gateway", duration="1h")
        worker = asyncio.create_task(app.run_worker())
        await app.jobs.wait(JobId(ids[3]), "20s")
        found = [(await app.jobs.get(ids[0])).state, (await app.jobs.explain(ids[0])).reason]
        await app.breakers.close("gateway")
        found.append((await app.jobs.wait(JobId(ids[0]), "20s")).state)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        return [str(one) for one in found]

    assert with_app(work) == ["queued", "breaker_open", "complete"]


# -- schedules --------------------------------------------------------------------------------------------------------
def test_schedules_show_when_they_tick(folder: Path, capsys: Capture) -> None:  # E39 E67
    (folder / "clockwork.py").write_text(APP, encoding="utf-8")
    with_app(lambda app: app.jobs.counts())
    assert main(["schedules", "--app", "clockwork:app", "--json"]) == 0
    shown = {one["name"]: one for one in json.loads(capsys.readouterr().out)["schedules"]}
    [report] = [one for name, one in shown.items() if name != "often"]
    assert (report["when"], report["zone"], report["last"]) == ("0 7 * * mon-fri", "Europe/Berlin", None)
    assert report["next"] is not None
    assert (shown["often"]["when"], shown["often"]["zone"], shown["often"]["held"]) == (
        "every 5m",
        None,
        None,
    )


def test_a_schedule_is_paused_and_resumed(capsys: Capture) -> None:  # E27 E39 E67
    async def tick(app: Holdfast) -> None:
        store = (await app.runtime.engine()).store
        now = await store.now()
        await schedule_ticks.move(store, "report", before=None, last=now, due=now)

    with_app(tick)
    assert answer(capsys, "schedules", "pause", "report", "--reason", "holidays")["reason"] == "holidays"
    [shown] = answer(capsys, "schedules")["schedules"]
    assert (shown["name"], shown["held"]["reason"]) == ("report", "holidays")
    assert "holidays" in said(capsys, "schedules")
    assert said(capsys, "schedules", "resume", "report") == "schedule report is resumed\n"
    assert answer(capsys, "schedules")["schedules"][0]["held"] is None


def test_a_schedule_that_no_code_declares_is_forgotten_with_its_pause(capsys: Capture) -> None:  # E39 E67
    async def tick(app: Holdfast) -> None:
        store = (await app.runtime.engine()).store
        now = await store.now()
        await schedule_ticks.move(store, "old", before=None, last=now, due=now)
        await app.queues.pause("old", kind="schedule")

    with_app(tick)
    assert said(capsys, "schedules", "forget", "old") == "schedule old is forgotten\n"
    assert answer(capsys, "schedules")["schedules"] == []
    again = said(capsys, "schedules", "forget", "old", code=2)
    assert again == "holdfast: no schedule named 'old'; there are none\n"

    async def held(app: Holdfast) -> None:
        assert await app.queues.holds() == []

    with_app(held)


def test_owners_are_shown_with_what_they_have_used(folder: Path, capsys: Capture) -> None:  # E18 E67
    with_app(lambda app: app.queues.list())
    assert said(capsys, "owners") == "The policy file names no owner.\n"
    (folder / "holdfast.toml").write_text(
        "[quotas.small]\nper_month = 5\ncost_per_day = 2.5\nmanual_retries_per_day = 1\n"
        '[owners."acme/ann"]\nquota = "small"\nweight = 3\nlimits = { rate = "60/min" }\n'
    )
    [shown] = answer(capsys, "owners")["owners"]
    assert shown == answer(capsys, "owners", "show", "acme/ann")
    assert (shown["owner"], shown["rate"], shown["jobs"]["month"]["limit"]) == ("acme/ann", "60/1m", 5)
    assert shown["manual_retries"]["day"] == {"used": 0, "limit": 1}
    for words in (said(capsys, "owners"), said(capsys, "owners", "show", "acme/ann")):
        assert "0 of 1" in words
        assert "0 of 2.5" in words
    assert "manual retries" not in said(capsys, "owners", "show", "bob")
