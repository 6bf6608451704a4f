"""Promises to customers: judged once, broken once, compensated once (E76)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast import UnknownJob, UsageError
from holdfast.contrib.credits import Credits
from systems.screenshots.codes import BY_CUSTOMER, CODES
from systems.screenshots.payouts import Claim, decide
from systems.screenshots.promises import Tier, read_promises
from systems.screenshots.settings import HERE
from systems.screenshots.shot import Shot
from systems.screenshots.sla import Sla, kept_success
from systems.screenshots.sla_report import Month
from tests.endpoint import ALLOW, Endpoint
from tests.systems.screenshots.api.world import ADMIN, PAGE, Easel, World, eventually

pytestmark = pytest.mark.anyio

SLA = """
[tiers.gold]
success_within = "2m"
retry_within = "30s"
compensation = 5
[tiers.silver]
success_within = "10m"
[customers]
"user:7" = "gold"
"org:acme" = "gold"
"user:9" = "silver"
"""
HANGING, FAILING, BAD = (f"https://example.com/{what}/x" for what in ("hang", "fail", "bad"))
#: Fails by what is ours, and not the customer's.
CRASHING = "https://example.com/code-BROWSER_CRASHED/x"


class Court:
    """A world in which promises are judged as if it were later."""

    def __init__(self, world: World) -> None:
        self.world, self.sla = world, Sla(world.app, world.books, world.screenshots.promises)

    async def judge(self, *, later: float = 0.0) -> int:
        await self.world.books.follow(self.world.app, self.world.screenshots.promises)
        return await self.sla.judge(time.time() + later)

    async def late(self, who: str = "ann", url: str = HANGING, **body: Any) -> str:
        """Ask for a picture and let it be late; it is still open."""
        job_id = await self.world.shot(who, url, **body)
        await self.world.running(job_id)
        await self.judge(later=3600)
        return job_id

    async def free(self, *jobs: str) -> None:
        """Let hanging pictures be taken."""
        self.world.browser.free.set()  # type: ignore[attr-defined]
        for job_id in jobs:
            await self.world.ended(job_id)
        self.world.browser.free.clear()  # type: ignore[attr-defined]

    async def walk(self, limit: int) -> list[tuple[str, str]]:
        """All breaches, page by page."""
        seen, after = [], ""
        while True:
            path = f"{ADMIN}/sla/breaches?limit={limit}{after}"
            page = (await self.world.ask("operator", "GET", path)).json()
            seen += [(one["jobId"], one["kind"]) for one in page["breaches"]]
            if page["next"] is None:
                return seen
            after = f"&after={page['next']}"

    async def found(self) -> list[tuple[str, str, str, int]]:
        return [(one.job_id, one.kind, one.account, one.credits) for one in await self.sla.breaches()]


@pytest.fixture
async def court(make_world: Callable[..., World]) -> AsyncIterator[Court]:
    async with make_world(sla=SLA).open() as world:
        yield Court(world)


@pytest.fixture
async def each_court(tmp_path: Path, database_url: str) -> AsyncIterator[Court]:
    """On each kind of store."""
    async with World(tmp_path, database_url, Easel(), sla=SLA).open() as world:
        yield Court(world)


async def test_a_late_picture_is_compensated_once_however_often_it_is_judged(
    each_court: Court,
) -> None:  # E76
    court, world = each_court, each_court.world
    job_id = await world.shot(url=HANGING)
    await world.running(job_id)
    assert await court.judge(later=100) == 0
    assert await court.judge(later=121) == 1
    assert await court.judge(later=121) == 0
    assert await court.found() == [(job_id, "SUCCESS", "user:7", 1)]
    assert await world.balance() == (99, 1, 0)  # its end decides whose fault it was
    await court.free(job_id)
    for _ in range(2):
        assert await court.judge(later=121) == 0
    assert await world.balance() == (100, 0, 1)
    [grant] = [
        one for one in (await Credits.of(world.app).account("user:7")).grants if one.source == "compensation"
    ]
    assert (grant.id, grant.amount) == (f"sla:{job_id}:SUCCESS", 1)
    told = (await world.ask("operator", "GET", f"{ADMIN}/sla/breaches")).json()["breaches"]
    assert [(one["jobId"], one["kind"], one["tier"]) for one in told] == [(job_id, "SUCCESS", "gold")]
    assert told[0]["compensatedAt"] is not None
    assert (await world.ask("operator", "GET", f"{ADMIN}/analytics")).json()["cost"][
        "compensationCredits"
    ] == 1
    [first] = await court.sla.breaches()
    others = [first._replace(kind="RETRY"), *(first._replace(job_id=f"job-{n}") for n in range(4))]
    older = first._replace(job_id="older", found_at=first.found_at - 1)
    for one in (*others, older):
        places = ", ".join(f"${n}" for n in range(1, len(one) + 1))
        await world.books.run(
            f"INSERT INTO screenshots_breach ({', '.join(one._fields)}) VALUES ({places})", *one
        )
    listed = await court.walk(limit=2)
    assert sorted(listed) == sorted((one.job_id, one.kind) for one in (first, *others, older))
    assert listed[-1] == ("older", "SUCCESS")
    for made_up in ("1.5", "nan/x/SUCCESS", "x/y/z", "inf/x/RETRY", "1/%00/RETRY"):
        refused = await world.ask("operator", "GET", f"{ADMIN}/sla/breaches?after={made_up}")
        assert (refused.status_code, refused.json()["error"]) == (422, "VALIDATION_ERROR")


async def test_what_is_there_in_time_is_no_breach_nor_what_nobody_could_have_taken(
    court: Court,
) -> None:  # E76
    world = court.world
    for url in (PAGE, BAD):
        await world.ended(await world.shot(url=url))
    cancelled = await world.shot(url=HANGING)
    await world.running(cancelled)
    await world.app.jobs.cancel(cancelled)
    await world.shot("bob", HANGING)  # nobody has promised bob anything
    assert await court.judge(later=3600) == 0
    assert await court.found() == []


async def test_a_picture_is_in_time_at_the_very_moment_and_late_behind_it(court: Court) -> None:  # E76
    job_id = await court.world.shot()
    await court.world.ended(job_id)
    row = await court.world.app.jobs.get(job_id)
    assert row.finished_at is not None
    there = row.finished_at.timestamp()
    assert (kept_success(row, there), kept_success(row, there - 0.001), kept_success(None, 0)) == (
        True,
        False,
        True,
    )


async def test_a_picture_that_failed_for_our_reasons_breaks_the_promise(court: Court) -> None:  # E76
    await court.world.ended(await court.world.shot())  # what was spent before is the bound
    job_id = await court.world.shot(url=CRASHING)
    await court.world.ended(job_id)
    assert await court.judge(later=3600) == 1
    assert await court.found() == [(job_id, "SUCCESS", "user:7", 1)]
    assert await court.world.balance() == (100, 0, 1)


# -- it earns no customer any credits ------------------------------------------------------------------------------------
@pytest.mark.parametrize("code", sorted(BY_CUSTOMER))
async def test_what_the_customer_causes_is_excused(court: Court, code: str) -> None:  # E76
    world = court.world
    await world.ended(await world.shot())
    failed = await world.shot(url=f"https://example.com/code-{code}/x")
    await world.ended(failed)
    assert await court.judge(later=3600) == 0
    assert await court.found() == []
    assert await world.balance() == (99, 0, 1)


def test_only_the_loss_of_the_browser_is_ours() -> None:  # E76
    assert {code.value for code in CODES} - BY_CUSTOMER == {"BROWSER_CRASHED"}


async def test_a_page_that_cannot_be_reached_is_excused_while_it_waits_for_its_retry(
    tmp_path: Path, database_url: str
) -> None:  # E76
    slow = '[tasks.SCREENSHOT]\nmax_attempts = 6\nbackoff = { fixed = "1h", jitter = "none" }\n'
    async with World(tmp_path, database_url, Easel(), sla=SLA, policies=slow).open() as world:
        court = Court(world)
        await world.ended(await world.shot())
        for number in range(3):
            job_id = await world.shot(url=f"{FAILING}/{number}")
            await world.until(job_id, lambda shown: shown["nextRetryAt"] is not None)
        assert await court.judge(later=125) == 0
        assert await world.balance() == (96, 3, 1)


async def test_a_late_picture_that_then_fails_by_its_page_or_is_cancelled_is_not_paid(
    each_court: Court,
) -> None:  # E76
    court, world = each_court, each_court.world
    await world.ended(await world.shot())
    cancelled = await court.late(url=f"{HANGING}/1")
    await world.app.jobs.cancel(cancelled)
    by_page = await court.late(url=f"{HANGING}/2")
    world.browser.after = "NAVIGATION_TIMEOUT"  # type: ignore[attr-defined]
    await court.free(by_page)
    world.browser.after = None  # type: ignore[attr-defined]
    gone = await court.late(url=f"{HANGING}/3")
    world.browser.status = 404  # type: ignore[attr-defined]
    await court.free(gone)
    await court.judge(later=3700)
    assert sorted(await court.found()) == sorted(
        (job_id, "SUCCESS", "user:7", 0) for job_id in (cancelled, by_page, gone)
    )
    assert await world.balance() == (98, 0, 2)
    for job_id in (cancelled, by_page, gone):
        assert (await world.kinds(job_id)).count("compensated") == 0


async def test_the_end_of_a_job_excuses_it_before_our_own_tables_know_of_it(court: Court) -> None:  # E76
    world = court.world
    await world.ended(await world.shot())
    job_id = await court.late()
    world.browser.after = "CONNECTION_FAILED"  # type: ignore[attr-defined]
    await court.free(job_id)
    await court.sla.judge(time.time() + 3700)  # without a look at the events since
    assert await court.found() == [(job_id, "SUCCESS", "user:7", 0)]


async def test_no_account_has_more_credits_than_it_was_given_whatever_it_asks_for(
    each_court: Court,
) -> None:  # E76 S3
    court, world = each_court, each_court.world
    for number in range(4):
        for url in (FAILING, BAD, CRASHING):
            await world.ended(await world.shot(url=f"{url}/{number}"))
        late, cancelled = (
            await court.late(url=f"{HANGING}/a{number}"),
            await court.late(url=f"{HANGING}/b{number}"),
        )
        await court.judge(later=3600)
        await world.app.jobs.cancel(cancelled)
        await court.free(late)
        await court.judge(later=3700 + number)
        available, reserved, spent = await world.balance()
        assert available + reserved <= 100
        assert spent == number + 1
    assert await world.balance() == (100, 0, 4)  # the four late ones were free


async def test_a_month_has_a_bound_and_the_next_one_another(make_world: Callable[..., World]) -> None:  # E76
    bounded = SLA.replace("compensation = 5", "compensation = 5\ncompensation_per_month = 2")
    async with make_world(sla=bounded, worker_concurrency=8).open() as world:
        court = Court(world)
        jobs = [await court.late(url=f"{HANGING}/{number}") for number in range(4)]
        await court.free(*jobs)
        await court.judge(later=3700)
        assert await world.balance() == (98, 0, 4)
        jobs = [await court.late(url=f"{HANGING}/next/{number}") for number in range(3)]
        await court.free(*jobs)
        await court.judge(later=40 * 86_400)
        assert await world.balance() == (97, 0, 7)  # two more of the seven


async def test_amounts_that_are_decided_at_once_keep_the_bounds_together(each_court: Court) -> None:  # E76
    world = each_court.world
    for number in range(6):
        await world.ended(await world.shot(url=f"{PAGE}/{number}"))
    claims = [Claim(f"job-{number}", "SUCCESS", "user:7", 1, 1, 3) for number in range(20)]
    for _ in range(2):  # the second time the same
        paid = await asyncio.gather(*(decide(world.app, world.books, claim, time.time()) for claim in claims))
        assert sum(paid) == 3


async def test_two_judges_at_once_pay_once(each_court: Court) -> None:  # E76
    court, world = each_court, each_court.world
    jobs = [await court.late(url=f"{HANGING}/{number}") for number in range(2)]
    await court.free(*jobs)
    judges = [Sla(world.app, world.books, world.screenshots.promises) for _ in range(4)]
    await world.books.follow(world.app, world.screenshots.promises)
    await asyncio.gather(*(judge.judge(time.time() + 3700) for judge in judges))
    assert await world.balance() == (100, 0, 2)


async def test_of_very_many_open_breaches_some_are_looked_at_each_time(
    court: Court, monkeypatch: pytest.MonkeyPatch
) -> None:  # E76
    monkeypatch.setattr("systems.screenshots.sla._MOST_OPEN", 1)
    late, still_open = await court.late(url=f"{HANGING}/1"), await court.late(url=f"{HANGING}/2")
    for job_id in (late, still_open):
        assert (await court.world.kinds(job_id))[-1] == "breached"  # recorded at once all the same
    await court.world.app.jobs.cancel(late)
    settled: set[str] = set()
    for _ in range(100):
        await court.judge(later=3700)
        settled = {one.job_id for one in await court.sla.breaches() if one.compensated_at is not None}
        if settled:
            break
    assert settled == {late}


async def test_both_promises_of_one_job_pay_its_price_at_most(
    make_world: Callable[..., World],
) -> None:  # E76
    async with make_world(sla=SLA).open(works=False) as world:
        court = Court(world)
        async with world.working():
            for number in range(2):
                await world.ended(await world.shot(url=f"{PAGE}/{number}", format="pdf"))
            job_id = await world.shot(url=CRASHING, format="pdf")
            await world.ended(job_id)
        await world.retry(job_id)  # and no worker runs
        assert await court.judge(later=3600) == 2
        async with world.working():
            await world.ended(job_id)
            await court.judge(later=3700)
        assert sum(one[3] for one in await court.found()) == 2
        assert await world.balance() == (98, 0, 4)


async def test_a_worker_whose_clock_is_ahead_breaks_no_promise(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # E76 E7
    async with World(tmp_path, postgres_url, Easel(), sla=SLA).open() as world:
        court = Court(world)
        await world.running(await world.shot(url=HANGING))
        await world.books.follow(world.app, world.screenshots.promises)
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + 3600)
        assert await court.sla.judge() == 0
        monkeypatch.undo()


async def test_a_customer_that_pays_for_others_has_its_promise_for_all_of_them(court: Court) -> None:  # E76
    world = court.world
    await Credits.of(world.app).open("user:8", paid_by="org:acme")
    job_id = await court.late("bob")
    await court.free(job_id)
    await court.judge(later=3600)
    assert await court.found() == [(job_id, "SUCCESS", "org:acme", 1)]
    assert await world.balance("org:acme") == (100, 0, 1)


async def test_a_retry_by_hand_begins_within_its_time(make_world: Callable[..., World]) -> None:  # E76
    async with make_world(sla=SLA).open(works=False) as world:
        court = Court(world)
        async with world.working():
            kept, broken = [await world.shot(url=f"{FAILING}/{number}") for number in range(2)]
            for job_id in (kept, broken):
                await world.ended(job_id)
            await world.retry(kept)
            await world.ended(kept)
        await world.retry(broken)  # and nobody works
        assert await court.judge(later=29) == 0
        assert await court.judge(later=31) == 1
        assert await court.found() == [(broken, "RETRY", "user:7", 1)]


async def crowd(world: World) -> None:
    """Let 2,010 pictures wait, of three customers, half of them HIGH."""
    for owner in ("user:7", "user:8", "org:acme"):
        for level in ("high", "normal"):
            shots = [{"shot": Shot(url=f"{PAGE}/{number}")} for number in range(335)]
            await world.screenshots.screenshot.options(owner=owner, priority=level).enqueue_many(shots)


async def started(world: World, job_id: str, after: int) -> list[str]:
    """Work until the job begins; what was begun behind the event *after*, in that order."""

    async def begun() -> list[str] | None:
        ids: list[str] = []
        mark = after
        while events := await world.app.events.list(after=mark):
            ids += [event.job_id for event in events if event.kind == "processing"]
            mark = events[-1].id
        return ids if job_id in ids else None

    async with world.working():
        return await eventually(begun) or []


@pytest.mark.parametrize("recorded", [True, False])
async def test_a_promised_retry_begins_before_two_thousand_pictures_that_wait(
    tmp_path: Path, database_url: str, recorded: bool
) -> None:  # E76 E25
    async with World(tmp_path, database_url, Easel(), sla=SLA).open() as world:
        promised, other = await world.shot(url=CRASHING), await world.shot("bob", CRASHING)
        for job_id in (promised, other):
            await world.ended(job_id)
        if recorded:
            await Court(world).judge()
    # Another process: on PostgreSQL a worker looks for priorities that are new to it at its first claim, then once a second.
    async with World(tmp_path, database_url, Easel(), sla=SLA).open(works=False, credits=1_000) as world:
        await crowd(world)
        later = (await world.retry(other, "bob")).json()["queuePosition"]
        first = (await world.retry(promised)).json()["queuePosition"]
        assert (first, later > 1_000) == (1, True)
        shown = [(await world.look(job_id))["priority"] for job_id in (promised, other)]
        assert shown == ["HIGH", "NORMAL"]
        [asked] = [one for one in await world.app.events.list(job_id=promised) if one.kind == "manual_retry"]
        assert asked.meta["priority"] == 1000
        order = await started(world, promised, asked.id)
        # Of 13 claims 8 begin with the high level: no more than five claims of all slots come before it.
        assert order.index(promised) <= 5 * world.app.runtime.settings.concurrency
        assert await Court(world).judge(later=31) == 0


async def test_a_retry_that_is_not_promised_keeps_its_priority(
    make_world: Callable[..., World],
) -> None:  # E76
    silver = SLA.replace('"user:7" = "gold"', '"user:7" = "silver"')
    async with make_world(sla=silver).open() as world:
        for who, priority in (("ann", -10), ("bob", 0)):
            job_id = await world.shot(who, CRASHING, priority="LOW" if priority else "NORMAL")
            await world.ended(job_id)
            assert (await world.retry(job_id, who)).status_code == 200
            assert (await world.app.jobs.get(job_id)).priority == priority


@pytest.mark.parametrize("recorded", [True, False])
async def test_a_promise_to_the_payer_puts_a_retry_first_too(
    make_world: Callable[..., World], recorded: bool
) -> None:  # E76
    async with make_world(sla=SLA).open() as world:
        await Credits.of(world.app).open("user:8", paid_by="org:acme")
        job_id = await world.shot("bob", CRASHING)
        await world.ended(job_id)
        if recorded:
            await Court(world).judge()
        assert (await world.retry(job_id, "operator")).status_code == 200
        assert (await world.app.jobs.get(job_id)).priority == 1000


async def test_a_judge_that_was_killed_at_any_point_has_paid_once_when_another_has_come(
    each_court: Court, monkeypatch: pytest.MonkeyPatch
) -> None:  # E76
    court, world = each_court, each_court.world
    await world.ended(await world.shot())
    job_id = await world.shot(url=CRASHING)
    await world.ended(job_id)
    run, left = world.books.run, 0

    async def dies(sql: str, *values: Any) -> list[tuple[Any, ...]]:
        nonlocal left
        left -= 1
        if left < 0:
            raise ConnectionError("killed here")
        return await run(sql, *values)

    for steps in range(1, 16):  # one step further each time
        left = steps
        monkeypatch.setattr(world.books, "run", dies)
        try:
            await court.judge(later=3600)
        except ConnectionError:
            continue
        finally:
            monkeypatch.setattr(world.books, "run", run)
    await court.judge(later=3600)
    assert len(await court.found()) == 1
    assert await world.balance() == (100, 0, 1)
    assert (await world.kinds(job_id))[-2:] == ["breached", "compensated"]
    assert Counter(await world.kinds(job_id))["breached"] == 1


async def test_a_breach_and_its_compensation_are_events_of_the_job(each_court: Court) -> None:  # E76 E60 S8
    court, world = each_court, each_court.world
    await world.ended(await world.shot())
    job_id = await world.shot(url=CRASHING)
    await world.ended(job_id)
    before = await world.kinds(job_id)
    for _ in range(2):
        await court.judge(later=3600)
    broken, paid = (await world.app.events.list(job_id=job_id))[len(before) :]
    due = (await world.app.jobs.get(job_id)).created_at.timestamp() + 120
    assert (broken.kind, paid.kind) == ("breached", "compensated")
    assert broken.meta == {
        "name": "SUCCESS",
        "tier": "gold",
        "due_at": datetime.fromtimestamp(due, UTC).isoformat(),
        "credits": 1,
    }
    assert paid.meta == {"name": "SUCCESS", "account": "user:7", "credits": 1}
    trail = (await world.ask("ann", "GET", f"/api/v1/screenshots/{job_id}/audit")).json()["trail"]
    assert [(one["action"], one["by"], one["reason"]) for one in trail][-2:] == [
        ("SLA_BREACHED", "system", "SUCCESS"),
        ("COMPENSATED", "system", "SUCCESS"),
    ]


async def test_a_breach_without_compensation_is_told_and_nothing_is_paid(
    make_world: Callable[..., World],
) -> None:  # E76
    async with make_world(sla=SLA.replace('"user:7" = "gold"', '"user:7" = "silver"')).open() as world:
        job_id = await world.shot(url=CRASHING)
        await world.ended(job_id)
        assert await Court(world).judge(later=3600) == 1
        assert (await world.kinds(job_id))[-1] == "breached"
        assert await world.balance() == (100, 0, 0)


async def test_a_webhook_is_told_of_a_breach_and_its_credits(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:  # E76 E61
    monkeypatch.setattr("holdfast.worker.claiming.REFRESH_EVERY", 0.1)  # its first message waits for that
    async with make_world(sla=SLA, options={"outbound_allow": ALLOW}).open() as world, Endpoint() as customer:
        kinds = ["breached", "compensated"]
        webhook = await world.app.webhooks.create(customer.url, owner="user:7", events=kinds)
        await world.ended(await world.shot())
        job_id = await world.shot(url=CRASHING)
        await world.ended(job_id)
        assert await Court(world).judge(later=3600) == 1
        messages = await customer.until(2)
    told = {message.kind: message.event for message in messages}
    assert sorted(told) == kinds
    assert {one["subject"] for one in told.values()} == {job_id}
    assert told["compensated"]["data"]["meta"]["credits"] == 1
    for message in messages:
        message.verify(webhook.secrets[0])


async def test_a_breach_of_a_job_that_retention_has_removed_is_paid_all_the_same(
    court: Court, monkeypatch: pytest.MonkeyPatch
) -> None:  # E76
    world = court.world
    await world.ended(await world.shot())
    job_id = await world.shot(url=CRASHING)
    await world.ended(job_id)

    async def gone(job_id: str, *_: Any, **__: Any) -> bool:
        raise UnknownJob(job_id)

    monkeypatch.setattr(world.app.events, "note", gone)
    assert await court.judge(later=3600) == 1
    assert await world.balance() == (100, 0, 1)


# -- the month ---------------------------------------------------------------------------------------------------------
async def test_a_month_is_reported_by_customer(each_court: Court) -> None:  # E76
    court, world = each_court, each_court.world
    await Credits.of(world.app).open("user:8", paid_by="org:acme")
    await world.ended(await world.shot())
    await world.ended(await world.shot(url=CRASHING))
    await court.free(await court.late("bob"))
    await court.judge(later=3700)
    due = datetime.now(UTC) + timedelta(seconds=120)
    shown = await world.ask("operator", "GET", f"{ADMIN}/sla/report?month={due:%Y-%m}")
    assert shown.json() == {
        "month": f"{due:%Y-%m}",
        "customers": [
            {
                "account": "org:acme",
                "tier": "gold",
                "due": 1,
                "broken": {"SUCCESS": 1, "RETRY": 0},
                "credits": 1,
            },
            {
                "account": "user:7",
                "tier": "gold",
                "due": 2,
                "broken": {"SUCCESS": 1, "RETRY": 0},
                "credits": 1,
            },
        ],
    }
    empty = await world.ask("operator", "GET", f"{ADMIN}/sla/report?month=2001-02")
    assert empty.json() == {"month": "2001-02", "customers": []}
    assert (await world.ask("operator", "GET", f"{ADMIN}/sla/report")).status_code == 200
    assert (await world.ask("ann", "GET", f"{ADMIN}/sla/report")).status_code == 403
    for month in ("2026-13", "2026-1", "now", "1999-12", "\u0662026-11"):
        refused = await world.ask("operator", "GET", f"{ADMIN}/sla/report?month={month}")
        assert (refused.status_code, refused.json()["error"]) == (422, "VALIDATION_ERROR")


def test_a_month_ends_where_the_next_begins() -> None:  # E76
    spans = [Month(2026, month).span for month in range(1, 13)] + [Month(2027, 1).span]
    assert all(one[1] == two[0] for one, two in pairwise(spans))
    assert spans[0][0] == datetime(2026, 1, 1, tzinfo=UTC).timestamp()


# -- the file ---------------------------------------------------------------------------------------------------------
def test_the_file_that_comes_with_it_can_be_read() -> None:  # E76
    promises = read_promises(HERE / "sla.toml")
    assert promises.tier_of([None, "user:demo"]) == Tier(
        name="gold", success_within=120.0, retry_within=30.0, compensation=2, compensation_per_month=50
    )
    assert promises.tier_of(["user:1"]) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[customers]\n"user:7" = "gold"', "customers have the unknown tier 'gold'; there are: none"),
        ('[tiers.gold]\nsuccess_within = "soon"', "tiers.gold.success_within is 'soon'"),
        ('[tiers.gold]\nsucces_within = "2m"', "unknown field `succes_within`"),
        ("[tiers.gold]\ncompensation = -1", ">= 0"),
        ("[tiers", "sla.toml: "),
    ],
)
def test_a_bad_file_is_told_in_one_line(tmp_path: Path, text: str, says: str) -> None:  # E76
    (tmp_path / "sla.toml").write_text(text)
    with pytest.raises(UsageError) as refused:
        read_promises(tmp_path / "sla.toml")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
    assert str(tmp_path) not in str(refused.value)
