"""The breaker: a worker's vote, the shared value, its trials."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast.errors import UsageError
from holdfast.resilience.breaker import (
    FORGIVEN_AFTER,
    PROBE_AGAIN,
    Breaker,
    BreakerPolicy,
    BreakerState,
    Ring,
    end_trial,
    forced,
    judge,
    take_trial,
)
from holdfast.resilience.outcome import Outcome
from holdfast.resilience.policy import LONGEST_RETRY_AFTER

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
OK, FAILED, SLOW = Outcome.OK, Outcome.FAILED, Outcome.SLOW
POLICY = BreakerPolicy(max_cooldown="5m")
chances = st.floats(0, 1, exclude_max=True)


def second(number: float) -> timedelta:
    return timedelta(seconds=number)


def decide(breaker: Breaker, policy: BreakerPolicy = POLICY, **given: Any) -> Breaker | None:
    facts: dict[str, Any] = {"votes": 0, "callers": 2, "now": NOW, "chance": 0.5}
    return judge(breaker, policy, **(facts | given))


def opened(policy: BreakerPolicy = POLICY, now: datetime = NOW) -> Breaker:
    found = decide(Breaker(), policy, votes=policy.votes, callers=policy.votes, now=now)
    assert found is not None
    return found


def half_opened(policy: BreakerPolicy = POLICY) -> Breaker:
    start = opened(policy)
    assert start.retry_at is not None
    found = decide(start, policy, now=start.retry_at)
    assert found is not None
    return found


def tried(breaker: Breaker, *outcomes: Outcome, now: datetime = NOW) -> Breaker:
    for outcome in outcomes:
        holder = f"call {breaker.version}"
        lent = take_trial(breaker, holder, now=now, until=now + second(60))
        assert lent is not None
        ended = end_trial(lent, holder, outcome)
        assert ended is not None
        breaker = ended
    return breaker


# -- a worker's vote --------------------------------------------------------------------------------------------------
def ring_of(policy: BreakerPolicy, outcomes: list[Outcome], every: float = 0.0) -> Ring:
    ring = Ring(policy)
    for place, outcome in enumerate(outcomes):
        ring.ended(ring.started(place * every), outcome, place * every)
    return ring


@given(
    st.lists(st.sampled_from(list(Outcome)), max_size=60),
    st.integers(1, 30),
    st.integers(1, 30),
    st.floats(0.01, 1),
    st.booleans(),
)
def test_a_vote_is_a_count_over_the_last_calls(
    outcomes: list[Outcome], window: int, min_calls: int, threshold: float, strictly: bool
) -> None:  # E20
    strictly = strictly and threshold < 1
    policy = BreakerPolicy(window=window, min_calls=min_calls, threshold=threshold, strictly_above=strictly)
    seen = [one for one in outcomes if one in (OK, SLOW, FAILED)][-window:]
    part = seen.count(FAILED) / len(seen) if seen else 0.0
    expected = len(seen) >= min(min_calls, window) and (part > threshold if strictly else part >= threshold)
    assert ring_of(policy, outcomes).vote(0.0) is expected


@given(st.lists(st.just(FAILED), max_size=9))
def test_too_few_calls_are_no_vote(outcomes: list[Outcome]) -> None:  # E20
    assert not ring_of(POLICY, outcomes).vote(0.0)


def test_ten_failures_of_twenty_are_a_vote_and_with_the_other_knob_are_not() -> None:  # E20
    half = [OK, FAILED] * 10
    assert ring_of(BreakerPolicy(), half).vote(0.0)
    assert not ring_of(BreakerPolicy(strictly_above=True), half).vote(0.0)
    assert ring_of(BreakerPolicy(strictly_above=True), [*half, FAILED, FAILED]).vote(0.0)


@pytest.mark.parametrize("tenth", range(1, 11))
def test_a_threshold_written_in_decimals_is_met_exactly(tenth: int) -> None:  # E20
    policy = BreakerPolicy(window=10, threshold=tenth / 10)
    assert ring_of(policy, [OK] * (10 - tenth) + [FAILED] * tenth).vote(0.0)
    assert not ring_of(policy, [OK] * (11 - tenth) + [FAILED] * (tenth - 1)).vote(0.0)


def test_throttling_and_our_own_bugs_are_not_counted() -> None:  # E20
    outcomes = [Outcome.THROTTLED, Outcome.UNCOUNTED] * 50
    assert not ring_of(POLICY, outcomes).vote(0.0)
    assert ring_of(POLICY, [*outcomes, *[FAILED] * 10]).vote(0.0)


def test_a_window_of_seconds_forgets_what_is_older() -> None:  # E20
    ring = ring_of(BreakerPolicy(window="120s"), [FAILED] * 10, every=1.0)
    assert ring.vote(9.0)
    assert ring.vote(113.0)
    assert not ring.vote(121.0)
    assert not ring.vote(1e6)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 30), st.booleans()), max_size=80))
def test_a_window_of_seconds_is_off_by_a_bucket_at_most(calls: list[tuple[float, bool]]) -> None:  # E20
    policy = BreakerPolicy(window="60s", min_calls=1, threshold=0.5)
    ring, now, past = Ring(policy), 0.0, []
    for pause, fails in calls:
        now += pause
        past.append((now, fails))
        ring.ended(ring.started(now), FAILED if fails else OK, now)
    certain = [fails for at, fails in past if now - at < 57]
    possible = [fails for at, fails in past if now - at <= 60]
    votes = {
        bool(kept) and sum(kept) / len(kept) >= 0.5
        for kept in (possible[first:] for first in range(len(possible) - len(certain) + 1))
    }
    assert ring.vote(now) in (votes or {False})


def test_slow_calls_are_a_vote_of_their_own() -> None:  # E20
    policy = BreakerPolicy(slow_after="1s", slow_threshold=0.8)
    assert not ring_of(policy, [SLOW] * 15 + [OK] * 5).vote(0.0)
    assert ring_of(policy, [SLOW] * 16 + [OK] * 4).vote(0.0)


def test_calls_that_hang_are_slow_before_they_end() -> None:  # E20
    ring = Ring(BreakerPolicy(slow_after="5s", slow_threshold=0.8))
    calls = [ring.started(0.0) for _ in range(10)]
    assert not ring.vote(5.0)
    assert ring.vote(5.1)
    for call in calls:
        ring.ended(call, OK, 5.2)
    assert not ring.vote(5.2)


def test_a_cleared_ring_knows_nothing_of_calls_that_began_before() -> None:  # E20, E22
    ring = Ring(BreakerPolicy(slow_after="5s"))
    before = [ring.started(0.0) for _ in range(20)]
    ring.clear()
    for call in before:
        ring.ended(call, FAILED, 60.0)
    assert not ring.vote(60.0)


# -- opening ----------------------------------------------------------------------------------------------------------
@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 5))
def test_it_opens_at_the_votes_asked_for_or_at_all_that_there_are(
    votes: int, callers: int, asked: int
) -> None:  # E20
    found = decide(Breaker(), BreakerPolicy(votes=asked), votes=votes, callers=callers)
    assert (found is not None) is (votes >= max(1, min(asked, callers)))
    if found is not None:
        assert (found.state, found.version, found.since, found.opened_at) == (OPEN, 1, NOW, NOW)


def test_one_bad_worker_among_many_opens_nothing_and_a_single_worker_does() -> None:  # E20
    assert decide(Breaker(), votes=1, callers=4) is None
    assert decide(Breaker(), votes=1, callers=1) is not None
    assert decide(Breaker(), votes=2, callers=4) is not None


def test_the_cooldown_doubles_with_each_vain_trial_up_to_its_bound() -> None:  # E22
    policy = BreakerPolicy(cooldown="30s", max_cooldown="5m")
    waits = [policy.wait(reopens, 0.5).total_seconds() for reopens in range(7)]
    assert waits == pytest.approx([30, 60, 120, 240, 300, 300, 300])
    assert policy.wait(0, 0.0) == second(24)
    assert policy.wait(10**9, 0.9) == second(300)


@given(st.integers(0, 10**6), chances)
def test_a_cooldown_stays_within_a_fifth_and_its_bound(reopens: int, chance: float) -> None:  # E22
    wait = POLICY.wait(reopens, chance)
    full = min(30 * 2.0 ** min(reopens, 20), 1e9)
    assert min(0.8 * full, 300) - 1e-5 <= wait.total_seconds() <= min(1.2 * full, 300) + 1e-5


def test_a_retry_after_puts_the_trials_off_but_not_for_ever() -> None:  # E12, E22
    asked = decide(Breaker(), votes=2, not_before=NOW + second(90))
    assert asked is not None
    assert asked.retry_at == NOW + second(90)
    assert opened().retry_at == NOW + second(30)
    later = decide(opened(), not_before=NOW + second(600))
    assert later is not None
    assert later.retry_at == NOW + second(600)
    assert decide(opened(), not_before=NOW + second(10)) is None
    greedy = decide(Breaker(), votes=2, not_before=NOW + timedelta(days=365))
    assert greedy is not None
    assert greedy.retry_at == NOW + LONGEST_RETRY_AFTER


def test_a_breaker_that_opens_again_soon_stays_open_longer_and_is_forgiven_in_time() -> None:  # E22
    closed = decide(tried(half_opened(), OK, OK), now=NOW)
    assert closed is not None
    soon = decide(closed, votes=2, now=NOW + FORGIVEN_AFTER - second(1))
    late = decide(closed, votes=2, now=NOW + FORGIVEN_AFTER)
    assert soon is not None
    assert late is not None
    assert (soon.reopens, late.reopens) == (1, 0)
    assert soon.opened_at == NOW + FORGIVEN_AFTER - second(1)


# -- half-open --------------------------------------------------------------------------------------------------------
def test_trials_begin_when_the_cooldown_has_passed_and_not_before() -> None:  # E22
    start = opened()
    assert decide(start, now=NOW + second(29.9)) is None
    found = decide(start, now=NOW + second(30))
    assert found is not None
    assert (found.state, found.free_trials(NOW), found.opened_at) == (HALF_OPEN, 3, NOW)


def test_two_successes_of_three_close_it_and_two_failures_open_it_again() -> None:  # E22
    for outcomes, state, reopens in [
        ((OK, OK), CLOSED, 0),
        ((FAILED, OK, OK), CLOSED, 0),
        ((OK, FAILED, OK), CLOSED, 0),
        ((FAILED, FAILED), OPEN, 1),
        ((FAILED, OK, FAILED), OPEN, 1),
        ((SLOW, SLOW), OPEN, 1),
    ]:
        found = decide(tried(half_opened(), *outcomes), now=NOW + second(31))
        assert found is not None, outcomes
        assert (found.state, found.reopens, found.since) == (state, reopens, NOW + second(31))
        assert found.opened_at == NOW
    for outcomes in ((), (OK,), (FAILED,), (OK, FAILED)):
        assert decide(tried(half_opened(), *outcomes)) is None, outcomes


def test_no_more_calls_than_slots_get_through() -> None:  # E22
    breaker = half_opened()
    for number in range(3):
        lent = take_trial(breaker, f"call {number}", now=NOW, until=NOW + second(10))
        assert lent is not None
        breaker = lent
    assert take_trial(breaker, "call 3", now=NOW, until=NOW + second(10)) is None


def test_a_slot_whose_holder_died_returns_and_decides_nothing() -> None:  # E22
    breaker = half_opened(BreakerPolicy(trials=1, trials_to_close=1))
    lent = take_trial(breaker, "dead", now=NOW, until=NOW + second(10))
    assert lent is not None
    assert take_trial(lent, "next", now=NOW + second(9), until=NOW + second(20)) is None
    assert decide(lent, now=NOW + second(3600)) is None
    again = take_trial(lent, "next", now=NOW + second(10), until=NOW + second(20))
    assert again is not None
    assert end_trial(again, "dead", FAILED) is None
    assert end_trial(again, "next", OK) is not None


@pytest.mark.parametrize("outcome", [Outcome.THROTTLED, Outcome.UNCOUNTED])
def test_an_outcome_that_tells_nothing_gives_the_slot_back(outcome: Outcome) -> None:  # E20, E22
    breaker = tried(half_opened(), outcome, outcome, outcome, outcome)
    assert breaker.free_trials(NOW) == 3
    assert decide(breaker) is None


def test_a_late_answer_of_an_earlier_round_changes_nothing() -> None:  # E22
    first = half_opened()
    lent = take_trial(first, "slowcoach", now=NOW, until=NOW + second(10))
    assert lent is not None
    reopened = decide(tried(lent, FAILED, FAILED))
    assert reopened is not None
    assert reopened.retry_at is not None
    second_round = decide(reopened, now=reopened.retry_at)
    assert second_round is not None
    assert end_trial(reopened, "slowcoach", OK) is None
    assert end_trial(second_round, "slowcoach", OK) is None


def test_only_a_half_open_breaker_lends_trials() -> None:  # E22
    for breaker in (Breaker(), opened()):
        assert take_trial(breaker, "x", now=NOW, until=NOW + second(1)) is None


def test_a_health_check_hastens_or_puts_off_the_trials_and_closes_nothing() -> None:  # E22
    twice = decide(tried(half_opened(), FAILED, FAILED))
    assert twice is not None
    assert twice.retry_at == NOW + second(60)
    assert decide(twice, now=NOW + second(29), healthy=True) is None
    hastened = decide(twice, now=NOW + second(30), healthy=True)
    assert hastened is not None
    assert hastened.state is HALF_OPEN
    put_off = decide(twice, now=NOW + second(60), healthy=False)
    assert put_off is not None
    # Nothing was tried in vain, and the outage is the same: only the trials come later.
    assert put_off == replace(twice, version=twice.version + 1, retry_at=NOW + second(60) + PROBE_AGAIN)
    assert decide(twice, now=NOW + second(59), healthy=False) is None
    assert decide(half_opened(), healthy=True) is None
    by_hand = forced(twice, now=NOW, open_until=NOW + timedelta(hours=1))
    assert decide(by_hand, now=NOW + timedelta(minutes=59), healthy=True) is None


def test_fewer_trials_than_successes_wanted_can_still_be_decided() -> None:  # E22
    breaker = half_opened(BreakerPolicy(trials=1, trials_to_close=1))
    found = decide(tried(breaker, FAILED), BreakerPolicy(trials=5, trials_to_close=4))
    assert found is not None
    assert found.state is OPEN


class Fleet(RuleBasedStateMachine):
    """Workers that vote, try, die and answer late, in any order, around one breaker."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = BreakerPolicy(trials=3, trials_to_close=2, votes=2)
        self.now = NOW
        self.breaker = Breaker()
        self.holders: list[str] = []
        self.lent: dict[str, datetime] = {}  #: who may be calling now, and until when

    def _is(self, changed: Breaker | None) -> None:
        if changed is not None:
            assert changed.version == self.breaker.version + 1
            legal = {CLOSED: {OPEN}, OPEN: {OPEN, HALF_OPEN}, HALF_OPEN: {HALF_OPEN, OPEN, CLOSED}}
            assert changed.state in legal[self.breaker.state]
            if changed.state is not HALF_OPEN:
                self.lent.clear()
            self.breaker = changed

    @rule(seconds=st.floats(0, 120))
    def time_passes(self, seconds: float) -> None:
        self.now += second(seconds)

    @rule(votes=st.integers(0, 3), callers=st.integers(1, 3), chance=chances)
    def somebody_judges(self, votes: int, callers: int, chance: float) -> None:
        found = judge(
            self.breaker, self.policy, votes=min(votes, callers), callers=callers, now=self.now, chance=chance
        )
        self._is(found)

    @rule(lease=st.floats(0.1, 60))
    def somebody_takes_a_trial(self, lease: float) -> None:
        holder, until = f"call {len(self.holders)}", self.now + second(lease)
        free = self.breaker.free_trials(self.now)
        found = take_trial(self.breaker, holder, now=self.now, until=until)
        assert (found is not None) is (self.breaker.state is HALF_OPEN and free > 0)
        if found is not None:
            self.holders.append(holder)
            self.lent[holder] = until
            self._is(found)

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), outcome=st.sampled_from(list(Outcome)))
    def somebody_answers_perhaps_late(self, data: st.DataObject, outcome: Outcome) -> None:
        holder = data.draw(st.sampled_from(self.holders))
        found = end_trial(self.breaker, holder, outcome)
        self.lent.pop(holder, None)
        self._is(found)

    @invariant()
    def never_more_calls_than_slots(self) -> None:
        assert sum(until > self.now for until in self.lent.values()) <= self.policy.trials

    @invariant()
    def an_open_breaker_says_when(self) -> None:
        if self.breaker.state is OPEN:
            assert self.breaker.retry_at is not None
            assert self.breaker.since is not None
            assert self.breaker.retry_at - self.breaker.since <= self.policy.max_cooldown

    @invariant()
    def half_open_can_always_be_left(self) -> None:
        breaker, late = self.breaker, self.now + timedelta(days=1)
        if breaker.state is not HALF_OPEN:
            return
        for number in range(self.policy.trials):
            lent = take_trial(breaker, f"good {number}", now=late, until=late + second(1))
            breaker = end_trial(lent, f"good {number}", OK) or breaker if lent is not None else breaker
        found = judge(breaker, self.policy, votes=0, callers=1, now=late, chance=0.5)
        assert found is not None
        assert found.state in (CLOSED, OPEN)


def test_whatever_workers_do_in_whatever_order_the_rules_hold() -> None:  # E20, E22
    run_state_machine_as_test(
        Fleet, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )


# -- knobs ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "window"), [(20, 20), ("20", 20), ("120s", second(120)), (second(5), second(5))]
)
def test_a_window_is_read_as_calls_or_as_time(text: Any, window: object) -> None:  # E20
    assert BreakerPolicy(window=text).window == window


def test_a_small_window_needs_no_more_calls_than_it_holds() -> None:  # E20
    assert BreakerPolicy(window=5).min_calls == 5
    assert BreakerPolicy(window="5s").min_calls == 10


@pytest.mark.parametrize(
    ("knobs", "told"),
    [
        ({"window": 0}, "window is 0; it is a whole number, 1 to 10000"),
        ({"window": 2.5}, 'window is 2.5; it is a number of calls (20) or a duration ("120s")'),
        ({"window": "soon"}, "window: 'soon' is not a duration"),
        ({"window": True}, "window is True"),
        ({"min_calls": 0}, "min_calls is 0; it is a whole number"),
        ({"threshold": 0}, "threshold is 0; it is a share of calls, above 0 and at most 1"),
        ({"threshold": 50}, "threshold is 50; it is a share of calls, above 0 and at most 1"),
        ({"threshold": math.nan}, "threshold is nan"),
        ({"threshold": 1.0, "strictly_above": True}, "more than all calls cannot fail"),
        ({"slow_after": "0s"}, "slow_after is '0s'; it is a duration, 1ms to 1d"),
        ({"slow_threshold": 2}, "slow_threshold is 2"),
        ({"cooldown": "0s"}, "cooldown is '0s'"),
        (
            {"cooldown": "10m", "max_cooldown": "5m"},
            "max_cooldown is '5m'; it must not be below cooldown ('10m')",
        ),
        ({"trials": 0}, "trials is 0"),
        ({"trials": 2, "trials_to_close": 3}, "trials_to_close is 3; it is a whole number, 1 to 2"),
        ({"mode": "panic"}, """mode is 'panic'; it is "hold" or "fail_fast\""""),
        ({"fail_code": ""}, "fail_code is ''"),
        ({"votes": 0}, "votes is 0"),
    ],
)
def test_a_knob_that_makes_no_sense_is_told_in_one_line(knobs: dict[str, Any], told: str) -> None:  # E20
    with pytest.raises(UsageError) as caught:
        BreakerPolicy(**knobs)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
