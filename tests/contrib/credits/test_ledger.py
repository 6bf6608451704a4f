"""The ledger of credits: one text for every store (S3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.contrib.credits import Account, Credits, InsufficientCredits, UnknownAccount
from holdfast.contrib.credits.books import Books
from holdfast.engine.extensions import StoreExtensions
from holdfast.engine.ports import MoveNotice, Reclaim, Transaction
from holdfast.errors import Conflict, UsageError
from holdfast.jobs.job import JobId, Settlement
from holdfast.jobs.moves import Kind
from holdfast.jobs.retention import Retention
from holdfast.jobs.verdict import Complete
from holdfast.tasks.task import Policy
from holdfast.wiring import new_job_id
from tests.contract.world import MINUTE, World, bury, done, release, retry

ANN, ACME = "user:ann", "org:acme"


class OneTask:
    """What credits look at in a task."""

    def __init__(self, price: int) -> None:
        self.policy = Policy(extra={"price": price})


class Shop:
    """A store whose task `email` is sold: the app of its credits."""

    def __init__(self, world: World, price: int = 1) -> None:
        self.world, self.store = world, world.store
        self.tasks: Any = {"email": OneTask(price)}
        self.credits = Credits()
        self.credits.attach(self)
        self.store.hooks.append((self.credits.kinds, self.credits.moved))
        self.store.extensions = StoreExtensions(
            {"credits": "holdfast.contrib.credits"}, [self.credits.purged]
        )
        self.new_id, self.transact = new_job_id, self.store.transact

    def run_sync(self, work: Any, /) -> Any:
        raise NotImplementedError

    async def enqueue(self, owner: str | None = ANN, **spec: Any) -> JobId:
        return await self.world.enqueue(owner=owner, **spec)

    async def retry(self, job_id: JobId, kind: Kind = Kind.manual_retry) -> int:
        return await self.store.retry(job_id, "ann", kind=kind)

    async def fail(self) -> None:
        await self.world.settle(await self.world.claim_one(), bury())

    async def stands(self, account: str = ANN) -> tuple[int, int, int, int]:
        """Available, reserved, spent, expired; all of the ledger balances."""
        assert await self.credits.check() == []
        found = await self.credits.account(account)
        assert found.available + found.reserved + found.spent + found.expired == found.granted
        return found.available, found.reserved, found.spent, found.expired

    async def reasons(self, job_id: JobId) -> list[str]:
        entries = await self.credits.ledger(job_id=job_id)
        return [entry.reason for entry in reversed(entries) if entry.amount > 0]


async def new_shop(world: World, price: int = 1) -> Shop:
    shop = Shop(world, price)
    await world.store.migrate()
    return shop


@pytest.fixture
async def shop(world: World) -> Shop:
    shop = await new_shop(world)
    await shop.credits.grant(ANN, 3, source="purchase")
    return shop


# -- the way of a credit ------------------------------------------------------------------------------------------------
async def test_credits_are_reserved_at_enqueue_and_captured_on_success(shop: Shop) -> None:  # S3
    job = await shop.enqueue()
    assert await shop.stands() == (2, 1, 0, 0)
    claimed = await shop.world.claim_one()
    assert await shop.stands() == (2, 1, 0, 0)
    await shop.world.settle(claimed, done())
    assert await shop.stands() == (2, 0, 1, 0)
    assert await shop.reasons(job) == ["reserve", "capture"]


async def test_credits_are_returned_when_a_job_fails_is_cancelled_or_times_out(shop: Shop) -> None:  # S3
    await shop.enqueue()
    await shop.fail()
    await shop.store.cancel(await shop.enqueue(), "ann", "")
    await shop.enqueue(deadline=MINUTE)
    assert await shop.stands() == (2, 1, 0, 0)
    await shop.world.advance("61s")
    assert len(await shop.store.time_out(10)) == 1
    assert await shop.stands() == (3, 0, 0, 0)


async def test_automatic_retries_releases_and_reclaims_are_free(shop: Shop) -> None:  # S3
    job = await shop.enqueue(max_attempts=5)
    await shop.world.settle(await shop.world.claim_one(), retry())
    await shop.world.settle(await shop.world.claim_one(), release())
    await shop.world.claim_one()
    await shop.world.advance("61s")
    [lost] = await shop.store.expired(10)
    await shop.store.reclaim([Reclaim(lost.lease, retry(0, "WORKER_LOST"), crashed=True)])
    assert await shop.stands() == (2, 1, 0, 0)
    await shop.world.settle(await shop.world.claim_one(), done())
    assert await shop.stands() == (2, 0, 1, 0)
    assert await shop.reasons(job) == ["reserve", "capture"]


@pytest.mark.parametrize("kind", [Kind.manual_retry, Kind.redriven], ids=["retry", "redrive"])
async def test_a_retry_of_a_finished_job_reserves_again(shop: Shop, kind: Kind) -> None:  # E33 S3
    job = await shop.enqueue()
    await shop.fail()
    await shop.retry(job, kind)
    assert await shop.stands() == (2, 1, 0, 0)
    with pytest.raises(Conflict):  # a second click
        await shop.retry(job, kind)
    assert await shop.stands() == (2, 1, 0, 0)
    await shop.world.settle(await shop.world.claim_one(), done())
    assert await shop.stands() == (2, 0, 1, 0)
    assert await shop.reasons(job) == ["reserve", "return", "reserve", "capture"]
    [first, *_] = [e for e in await shop.credits.ledger(ANN) if e.reason == "reserve" and e.generation == 2]
    assert first.by == "ann"  # S8: who retried is in the ledger


async def test_a_retry_of_a_waiting_job_reserves_nothing_more(shop: Shop) -> None:  # E2a S3
    job = await shop.enqueue()
    await shop.world.settle(await shop.world.claim_one(), retry("1h"))
    await shop.retry(job)
    assert await shop.stands() == (2, 1, 0, 0)


async def test_a_retry_of_a_stuck_job_reserves_only_for_a_new_generation(shop: Shop) -> None:  # E2a E33 S3
    job = await shop.enqueue(max_attempts=2)
    await shop.world.claim_one()
    await shop.world.advance("61s")
    await shop.retry(job)
    assert await shop.stands() == (2, 1, 0, 0)
    assert await shop.reasons(job) == ["reserve"]
    await shop.world.claim_one()
    await shop.world.advance("61s")
    await shop.retry(job)  # its last attempt: it ends, and the retry begins anew
    assert await shop.stands() == (2, 1, 0, 0)
    assert await shop.reasons(job) == ["reserve", "return", "reserve"]


async def test_a_settlement_that_is_sent_twice_has_one_effect(shop: Shop) -> None:  # E6 S3
    await shop.enqueue()
    claimed = await shop.world.claim_one()
    for _ in range(2):
        await shop.world.settle(claimed, done())
    assert await shop.stands() == (2, 0, 1, 0)


async def test_an_enqueue_that_is_sent_twice_is_paid_once(shop: Shop) -> None:  # E6 S3
    job = await shop.enqueue()
    assert await shop.enqueue(job_id=job) == job
    twin = await shop.enqueue(dedupe=b"0123456789abcdef")
    assert await shop.enqueue(dedupe=b"0123456789abcdef") == twin
    assert await shop.stands() == (1, 2, 0, 0)


async def test_what_a_job_had_reserved_goes_with_the_job_and_the_ledger_stays(shop: Shop) -> None:  # E38 S3
    gone = await shop.enqueue()
    await shop.world.settle(await shop.world.claim_one(), done())
    kept = await shop.enqueue()

    async def holds() -> list[bool]:
        return await shop.store.transact(look, reads=True)

    async def look(transaction: Transaction) -> list[bool]:
        return [await Books(transaction).has_hold(job, 1) for job in (gone, kept)]

    assert await holds() == [True, True]
    await shop.world.advance("1h")
    assert await shop.store.purge(None, Retention(jobs=MINUTE), 10) == 1
    assert await holds() == [False, True]
    assert await shop.stands() == (1, 1, 1, 0)
    assert await shop.reasons(gone) == ["reserve", "capture"]


async def test_a_late_result_is_not_charged(shop: Shop) -> None:  # E35 S3
    job = await shop.enqueue()
    claimed = await shop.world.claim_one()
    await shop.store.cancel(job, "ann", "")
    await shop.world.settle(claimed, done())
    assert await shop.stands() == (3, 0, 0, 0)


async def test_a_rejected_input_costs_nothing(shop: Shop) -> None:
    from holdfast.jobs.job import JobSpec, NewJob
    from tests.contract.world import LANE, failed

    spec = JobSpec(lane=LANE, owner=ANN)
    await shop.store.reject(NewJob(new_job_id(), "{}", spec), failed("NOT_PDF"))
    assert await shop.stands() == (3, 0, 0, 0)


async def test_a_completion_in_the_users_transaction_is_captured_with_it(shop: Shop) -> None:
    await shop.enqueue()
    claimed = await shop.world.claim_one()
    async with shop.store.transaction() as connection:
        await shop.store.complete_in(connection, Settlement(claimed.lease, Complete("1")))
    assert await shop.stands() == (2, 0, 1, 0)


# -- refusals -----------------------------------------------------------------------------------------------------------
async def test_without_credits_nothing_is_enqueued(shop: Shop) -> None:  # S2 S3
    for _ in range(3):
        await shop.enqueue()
    with pytest.raises(InsufficientCredits) as refused:
        await shop.enqueue()
    assert (refused.value.required, refused.value.available, refused.value.account) == (1, 0, ANN)
    assert (await shop.store.queries.counts())["queued"] == 3
    assert await shop.stands() == (0, 3, 0, 0)
    with pytest.raises(InsufficientCredits):
        await shop.enqueue("user:nobody")


async def test_without_credits_a_retry_changes_nothing(shop: Shop) -> None:  # E33 S2 S3
    job = await shop.enqueue()
    await shop.fail()
    for _ in range(3):
        await shop.enqueue(delay=MINUTE)
    with pytest.raises(InsufficientCredits):
        await shop.retry(job)
    row = await shop.world.row(job)
    assert (row.state, row.generation) == ("failed", 1)
    assert await shop.stands() == (0, 3, 0, 0)


async def test_many_at_once_are_told_the_price_of_all_and_none_is_there(shop: Shop) -> None:  # E46 S3
    from holdfast.jobs.job import JobSpec, NewJob
    from tests.contract.world import LANE

    spec = JobSpec(lane=LANE, owner=ANN)
    jobs = [NewJob(new_job_id(), "{}", spec) for _ in range(4)]
    with pytest.raises(InsufficientCredits) as refused:
        await shop.store.enqueue(jobs)
    assert (refused.value.required, refused.value.available) == (4, 3)
    assert (await shop.store.queries.counts())["queued"] == 0
    await shop.store.enqueue(jobs[:3])
    assert await shop.stands() == (0, 3, 0, 0)


async def test_a_job_without_an_owner_cannot_be_sold(shop: Shop) -> None:
    with pytest.raises(UsageError, match="no owner who pays"):
        await shop.enqueue(None)


async def test_what_is_free_needs_no_account(world: World) -> None:
    shop = await new_shop(world, price=0)
    await shop.enqueue("user:nobody")
    await shop.enqueue(None)
    assert await shop.credits.ledger() == []


async def test_a_hook_that_fails_after_the_ledger_undoes_the_ledger(shop: Shop) -> None:  # E5 S3
    async def refuse(transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        raise RuntimeError("killed here")

    job = await shop.enqueue()
    claimed = await shop.world.claim_one()
    shop.store.hooks.append((frozenset(Kind), refuse))
    with pytest.raises(RuntimeError):
        await shop.enqueue()
    with pytest.raises(RuntimeError):
        await shop.world.settle(claimed, done())
    assert await shop.stands() == (2, 1, 0, 0)
    shop.store.hooks.pop()
    await shop.world.settle(claimed, done())
    assert await shop.stands() == (2, 0, 1, 0)
    assert await shop.reasons(job) == ["reserve", "capture"]


# -- grants -------------------------------------------------------------------------------------------------------------
async def test_what_expires_first_is_spent_first(world: World) -> None:  # S3
    shop = await new_shop(world, price=2)
    await shop.credits.grant(ANN, 5, source="purchase", id="for-ever")
    await shop.credits.grant(ANN, 3, source="promotion", expires="1h", id="later")
    await shop.credits.grant(ANN, 1, source="promotion", expires="1m", id="sooner")
    await shop.enqueue()
    left = {grant.id: grant.remaining for grant in (await shop.credits.account(ANN)).grants}
    assert left == {"later": 2, "for-ever": 5}
    await world.advance("2h")
    assert await shop.stands() == (5, 2, 0, 2)
    assert await shop.credits.expire() == 1
    assert await shop.stands() == (5, 2, 0, 2)
    await shop.fail()  # what came from grants that have expired since expires with them
    assert await shop.stands() == (5, 0, 0, 4)
    assert await shop.credits.expire() == 0


async def test_expired_credits_cannot_be_spent_whether_or_not_the_duty_came_by(world: World) -> None:
    shop = await new_shop(world)
    await shop.credits.grant(ANN, 1, expires="1m")
    await world.advance("61s")
    with pytest.raises(InsufficientCredits) as refused:
        await shop.enqueue()
    assert refused.value.available == 0


async def test_a_grant_that_is_sent_twice_is_given_once(shop: Shop) -> None:  # E6 E76
    given = [
        await shop.credits.grant(ANN, 10, source="compensation", id="breach-1", note="late") for _ in range(2)
    ]
    assert given[0] == given[1]
    [grant, _] = given
    assert (grant.amount, grant.source, grant.note) == (10, "compensation", "late")
    assert await shop.stands() == (13, 0, 0, 0)
    with pytest.raises(Conflict, match="another grant"):
        await shop.credits.grant(ANN, 11, source="compensation", id="breach-1")


async def test_an_operator_adjusts_with_a_reason_and_never_below_nothing(shop: Shop) -> None:
    assert (await shop.credits.adjust(ANN, 2, reason="goodwill", by="op")).available == 5
    for _ in range(2):  # sent again
        assert (await shop.credits.adjust(ANN, -4, reason="refunded", by="op", id="a-1")).available == 1
    with pytest.raises(InsufficientCredits):
        await shop.credits.adjust(ANN, -2, reason="too much")
    with pytest.raises(UsageError, match="without a reason"):
        await shop.credits.adjust(ANN, 1, reason="")
    assert await shop.stands() == (1, 0, 0, 0)
    [newest, *_] = await shop.credits.ledger(ANN)
    assert (newest.reason, newest.by, newest.note) == ("adjust", "op", "refunded")


# -- who pays -----------------------------------------------------------------------------------------------------------
async def test_an_organisation_pays_for_its_members(shop: Shop) -> None:  # S3
    await shop.credits.open("user:bob", paid_by=ACME)
    with pytest.raises(InsufficientCredits) as refused:
        await shop.enqueue("user:bob")
    assert refused.value.account == ACME
    await shop.credits.grant(ACME, 5)
    job = await shop.enqueue("user:bob")
    assert await shop.stands(ACME) == (4, 1, 0, 0)
    await shop.credits.open("user:bob", paid_by="user:bob")  # what is reserved stays the organisation's
    await shop.store.cancel(job, "bob", "")
    assert await shop.stands(ACME) == (5, 0, 0, 0)
    with pytest.raises(InsufficientCredits) as refused:
        await shop.enqueue("user:bob")
    assert refused.value.account == "user:bob"


async def test_payers_make_no_chains(shop: Shop) -> None:
    await shop.credits.open("user:bob", paid_by=ACME)
    with pytest.raises(UsageError, match="paid for by another"):
        await shop.credits.open(ANN, paid_by="user:bob")
    with pytest.raises(UsageError, match="pays for other accounts"):
        await shop.credits.open(ACME, paid_by=ANN)


# -- checking -----------------------------------------------------------------------------------------------------------
async def test_what_others_ended_without_hooks_is_found_and_settled(shop: Shop) -> None:
    jobs = [await shop.enqueue() for _ in range(3)]
    hooks, shop.store.hooks = shop.store.hooks, []
    await shop.world.settle(await shop.world.claim_one(), done())
    await shop.fail()
    shop.store.hooks = hooks
    told = await shop.credits.check()
    assert len(told) == 2
    assert "still reserved" in told[0]
    assert await shop.credits.reconcile() == 2
    assert await shop.stands() == (1, 1, 1, 0)
    assert await shop.credits.reconcile() == 0
    assert {tuple(await shop.reasons(job)) for job in jobs} == {
        ("reserve", "capture"),
        ("reserve", "return"),
        ("reserve",),
    }


async def test_a_retry_returns_what_an_end_without_hooks_had_left(shop: Shop) -> None:
    job = await shop.enqueue()
    hooks, shop.store.hooks = shop.store.hooks, []
    await shop.fail()
    shop.store.hooks = hooks
    await shop.retry(job)
    assert await shop.stands() == (2, 1, 0, 0)
    assert await shop.reasons(job) == ["reserve", "return", "reserve"]


async def test_accounts_and_entries_are_listed_in_pages(shop: Shop) -> None:
    for name in ("user:bob", "user:cid"):
        await shop.credits.grant(name, 1)
    await shop.enqueue()
    page = await shop.credits.accounts(limit=2)
    rest = await shop.credits.accounts(after=page[-1].id, limit=2)
    found: list[Account] = [*page, *rest]
    assert [(a.id, a.available, a.reserved) for a in found] == [
        (ANN, 2, 1),
        ("user:bob", 1, 0),
        ("user:cid", 1, 0),
    ]
    entries = await shop.credits.ledger(limit=3)
    entries += await shop.credits.ledger(limit=1000, before=entries[-1].number)
    numbers = [entry.number for entry in entries]
    assert numbers == sorted(numbers, reverse=True)
    assert len(entries) == 8
    assert sum(entry.amount for entry in entries) == 0
    with pytest.raises(UnknownAccount):
        await shop.credits.account("user:nobody")
    with pytest.raises(UsageError):
        await shop.credits.grant("", 1)
