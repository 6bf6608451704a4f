"""Credits, decided: which grants are drawn from, what comes back, and that every page of the ledger sums to nothing."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contrib.credits import InsufficientCredits, QuotaExceeded
from holdfast.contrib.credits.model import (
    CreditHold,
    CreditQuota,
    Draw,
    Grant,
    HoldState,
    Sold,
    Uses,
    account_name,
    hold_state,
)
from holdfast.contrib.credits.posting import Posting, Sale, Wallet
from holdfast.errors import UsageError
from holdfast.jobs.codes import ErrorClass, lookup
from holdfast.jobs.job import JobId
from holdfast.jobs.moves import State
from holdfast.resilience.classify import classify

NOW = datetime(2026, 3, 31, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def grant(name: str, amount: int, expires_in: timedelta | None = None) -> Grant:
    expires_at = None if expires_in is None else NOW + expires_in
    return Grant(
        id=name, account="ann", source="purchase", amount=amount, remaining=amount, expires_at=expires_at, created_at=NOW
    )  # fmt: skip


def page_with(*grants: Grant, now: datetime = NOW, quota: CreditQuota | None = None) -> Posting:
    wallet = Wallet("ann", quota=quota or CreditQuota())
    wallet.grants = {one.id: one for one in grants}
    wallet.available = sum(one.remaining for one in grants)
    return Posting(now, {"ann": wallet})


def sale(price: int, job: str = "j1", *, is_retry: bool = False) -> Sale:
    sold = Sold(JobId(job), "shoot", "ann", 2 if is_retry else 1, State.QUEUED)
    return Sale(sold, "ann", price, is_retry, "")


def left(page: Posting) -> dict[str, int]:
    return {one.id: one.remaining for one in page.wallets["ann"].grants.values()}


def sums(page: Posting) -> Counter[str]:
    total: Counter[str] = Counter()
    for entry in page.entries:
        total[entry.bucket] += entry.amount
    return total


def test_who_expires_first_is_drawn_from_first_and_who_never_does_last() -> None:  # S3
    page = page_with(grant("never", 5), grant("late", 3, 2 * DAY), grant("soon", 1, DAY))
    page.reserve([sale(6)], {})
    assert left(page) == {"never": 3, "late": 0, "soon": 0}
    assert page.holds[0].draws == (Draw("soon", 1), Draw("late", 3), Draw("never", 2))


def test_at_its_very_moment_a_grant_has_not_expired() -> None:
    assert not grant("g", 1, timedelta()).has_expired(NOW)
    assert grant("g", 1, timedelta()).has_expired(NOW + timedelta(microseconds=1))


def test_what_is_missing_is_told_before_anything_is_taken() -> None:  # S2
    page = page_with(grant("g", 3), grant("gone", 9, -DAY))
    with pytest.raises(InsufficientCredits) as refused:
        page.reserve([sale(2, "a"), sale(2, "b")], {})
    assert (refused.value.required, refused.value.available) == (4, 3)
    assert (page.entries, page.holds, left(page)["g"]) == ([], [], 3)


def test_what_comes_back_into_an_expired_grant_expires() -> None:  # S3
    before = page_with(grant("never", 5), grant("soon", 2, DAY))
    before.reserve([sale(3)], {})
    after = Posting(NOW + 2 * DAY, deepcopy(before.wallets))
    after.give_back(before.holds[0])
    assert sums(after) == {"reserved": -3, "available": 1, "expired": 2}
    assert left(after) == {"never": 5, "soon": 0}


def test_a_quota_counts_retries_and_cost_by_the_calendar() -> None:  # E18
    quota = CreditQuota(retries_per_day=1, cost_per_month=5)
    page = page_with(grant("g", 100), quota=quota)
    page.reserve([sale(1, "a", is_retry=True)], {})
    with pytest.raises(QuotaExceeded, match=r"may use 1 retries a day.*2026-04-01 00:00 UTC") as refused:
        page.reserve([sale(1, "b", is_retry=True)], {})
    assert refused.value.resets_at == datetime(2026, 4, 1, tzinfo=UTC)
    page.wallets["ann"].quota = CreditQuota(retries_per_day=0, cost_per_month=5)
    page.reserve([sale(1, "c")], {})  # lowered since: only retries are refused
    with pytest.raises(QuotaExceeded, match="may use 5 credits a month"):
        page.reserve([sale(5, "d")], {})


def test_uses_begin_anew_with_their_period_and_what_is_returned_is_not_counted() -> None:  # E18
    uses = Uses().add(NOW, retries=1, cost=4)
    assert uses.of("day", NOW + DAY).cost == 0
    assert uses.of("month", NOW).retries == 1
    back = uses.reverse(NOW, 3)
    assert (back.of("day", NOW).cost, back.of("month", NOW).cost) == (1, 1)
    next_month = uses.add(NOW + DAY, cost=2).reverse(NOW, 4)  # used in a period that is over
    assert next_month.of("day", NOW + DAY).cost == 2


@pytest.mark.parametrize(
    ("state", "generation", "expected"),
    [
        (State.QUEUED, 1, HoldState.HELD),
        (State.PROCESSING, 1, HoldState.HELD),
        (State.COMPLETE, 1, HoldState.CAPTURED),
        (State.FAILED, 1, HoldState.RETURNED),
        (State.CANCELLED, 1, HoldState.RETURNED),
        (State.COMPLETE, 2, HoldState.RETURNED),
    ],
)
def test_how_a_hold_should_stand_follows_from_its_job(
    state: State, generation: int, expected: HoldState
) -> None:
    hold = CreditHold(
        job_id=JobId("j"), generation=1, account="ann", owner="ann", price=1, draws=(), is_retry=False, at=NOW
    )
    assert hold_state(hold, Sold(JobId("j"), "shoot", "ann", generation, state)) is expected
    assert hold_state(hold, None) is HoldState.RETURNED


def test_credit_errors_are_permanent() -> None:  # E13
    for error, status in (
        (InsufficientCredits(2, 1, "ann"), 402),
        (QuotaExceeded("ann", "cost_per_day", 1, NOW), 429),
    ):
        assert lookup(error.code).status == status
        failure = classify(error)
        assert (failure.code, failure.error_class) == (error.code, ErrorClass.PERMANENT)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "\x00", 7, None])
def test_an_account_needs_a_name_that_can_be_read(name: object) -> None:
    with pytest.raises(UsageError, match="cannot name an account"):
        account_name(name)


@pytest.mark.parametrize("bound", [-1, 1.5, True, "7"])
def test_a_quota_is_a_whole_number(bound: object) -> None:
    with pytest.raises(UsageError, match="retries_per_day is"):
        CreditQuota(retries_per_day=bound)  # type: ignore[arg-type]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("grant"), st.integers(1, 9), st.sampled_from([None, 1, 2, 5])),
        st.tuples(st.just("reserve"), st.integers(1, 9), st.none()),
        st.tuples(st.sampled_from(["capture", "return"]), st.integers(0, 20), st.none()),
        st.tuples(st.just("take"), st.integers(1, 9), st.none()),
        st.tuples(st.sampled_from(["expire", "wait"]), st.none(), st.none()),
    ),
    max_size=40,
)


@given(STEPS)
def test_whatever_happens_every_page_balances(steps: list[tuple[str, int | None, int | None]]) -> None:  # S3
    wallet, now, held, total = Wallet("ann"), NOW, list[CreditHold](), Counter[str]()
    for number, (doing, amount, days) in enumerate(steps):
        if doing == "wait":
            now += DAY
            continue
        page = Posting(now, {"ann": deepcopy(wallet)})
        try:
            match doing:
                case "grant":
                    assert amount is not None
                    new = grant(str(number), amount)
                    page.grant(
                        Grant(
                            id=new.id, account="ann", source="purchase", amount=amount, remaining=amount,
                            expires_at=None if days is None else now + days * DAY, created_at=now,
                        )
                    )  # fmt: skip
                case "reserve":
                    assert amount is not None
                    page.reserve([sale(amount, f"j{number}")], {})
                case "take":
                    assert amount is not None
                    page.take(page.wallets["ann"], amount, str(number), by="op", note="why")
                case "expire":
                    page.expire(page.wallets["ann"])
                case _:
                    if not held:
                        continue
                    assert amount is not None
                    hold = held.pop(amount % len(held))
                    page.capture(hold) if doing == "capture" else page.give_back(hold)
        except InsufficientCredits:
            continue  # and the page is thrown away
        assert sum(entry.amount for entry in page.entries) == 0
        assert len({(entry.tx, entry.bucket) for entry in page.entries}) == len(page.entries)
        wallet, total = page.wallets["ann"], _added(total, page)
        held += page.holds
        assert wallet.available == total["available"] == sum(g.remaining for g in wallet.grants.values())
        assert total["reserved"] == sum(hold.price for hold in held)
        assert all(0 <= g.remaining <= g.amount for g in wallet.grants.values())
        assert sum(total.values()) == 0


def _added(total: Counter[str], page: Posting) -> Counter[str]:
    """Counters drop what is below nothing when they are added."""
    added = Counter(total)
    added.update(sums(page))
    return added
