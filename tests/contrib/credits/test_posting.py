"""Credits, decided: which grants are drawn from, what comes back, and that every page of the ledger sums to nothing."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.contrib.credits import InsufficientCredits
from holdfast.contrib.credits.model import (
    CreditHold,
    Draw,
    Grant,
    HoldState,
    Sold,
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


def page_with(*grants: Grant, now: datetime = NOW) -> Posting:
    wallet = Wallet("ann")
    wallet.grants = {one.id: one for one in grants}
    wallet.available = sum(one.remaining for one in grants)
    return Posting(now, {"ann": wallet})


def sale(price: int, job: str = "j1") -> Sale:
    sold = Sold(JobId(job), "shoot", "ann", 1, State.QUEUED)
    return Sale(sold, "ann", price, False, "")


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
    hold = CreditHold(job_id=JobId("j"), generation=1, account="ann", owner="ann", price=1, draws=(), at=NOW)
    assert hold_state(hold, Sold(JobId("j"), "shoot", "ann", generation, state)) is expected
    assert hold_state(hold, None) is HoldState.RETURNED


def test_credit_errors_are_permanent() -> None:  # E13
    error = InsufficientCredits(2, 1, "ann")
    assert lookup(error.code).status == 402
    failure = classify(error)
    assert (failure.code, failure.error_class) == (error.code, ErrorClass.PERMANENT)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "\x00", 7, None])
def test_an_account_needs_a_name_that_can_be_read(name: object) -> None:
    with pytest.raises(UsageError, match="cannot name an account"):
        account_name(name)
