"""The breaker beside three others: what their authors publish in documentation and tests, with our knobs set to their rules.

resilience4j: a rate over a sliding window of calls or seconds, `>=`, slow calls, a verdict over the permitted calls of
half-open. failsafe-go: k of n in closed, k of n in half-open. pybreaker: failures in a row, then successes in a row.
Only the facts are theirs. Where they wait for all permitted calls we decide as soon as it is decided: the verdict is the same.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.jobs.verdict import Failure
from holdfast.resilience.breaker import (
    Breaker,
    BreakerPolicy,
    BreakerState,
    Ring,
    end_trial,
    judge,
    take_trial,
)
from holdfast.resilience.outcome import Outcome, outcome_of

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
BROKEN = Failure.of("HTTP_5XX")


class Alone:
    """A breaker in one process, as those authors have it: one worker, whose vote is enough."""

    def __init__(self, policy: BreakerPolicy, state: BreakerState = CLOSED) -> None:
        self.policy, self.ring, self.breaker = policy, Ring(policy), Breaker()
        self.seconds = 0.0
        self._trials = 0
        if state is not CLOSED:
            self._judge(votes=1)
        if state is HALF_OPEN:
            self.pass_seconds(policy.cooldown.total_seconds())

    @property
    def state(self) -> BreakerState:
        return self.breaker.state

    def play(self, calls: str, *, every: float = 0.0) -> str:
        """One letter a call: S succeeds, F fails; lower case: slowly (5 s). The letters of the states after each call."""
        states = ""
        for letter in calls:
            self.call(fails=letter in "Ff", seconds=5.0 if letter.islower() else 0.0)
            states += {CLOSED: "c", OPEN: "o", HALF_OPEN: "h"}[self.state]
            self.pass_seconds(every)
        return states

    def call(self, *, fails: bool, seconds: float) -> None:
        outcome = outcome_of(BROKEN if fails else None, seconds, self.policy.slow_after)
        if self.state is HALF_OPEN:
            holder = self.permit()
            assert holder is not None
            self.end(holder, outcome)
        else:
            began = self.ring.started(self.seconds - seconds)
            self.ring.ended(began, outcome, self.seconds)
            self._judge(votes=int(self.ring.vote(self.seconds)))

    def permit(self) -> str | None:
        self._trials += 1
        holder = str(self._trials)
        lent = take_trial(self.breaker, holder, now=self._now(), until=self._now() + timedelta(minutes=1))
        self.breaker = lent or self.breaker
        return holder if lent else None

    def end(self, holder: str, outcome: Outcome) -> None:
        self.breaker = end_trial(self.breaker, holder, outcome) or self.breaker
        self._judge()

    def pass_seconds(self, seconds: float) -> None:
        self.seconds += seconds
        if self.state is OPEN:
            self._judge()

    def _judge(self, votes: int = 0) -> None:
        moved = judge(self.breaker, self.policy, votes=votes, callers=1, now=self._now(), chance=0.5)
        self.breaker = moved or self.breaker

    def _now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)


# -- resilience4j -----------------------------------------------------------------------------------------------------
#: 20 s, at least 5 calls, 50 % failures or 50 % slower than 4 s; 5 s open; 4 calls in half-open, closed below 50 %.
R4J = BreakerPolicy(
    window="20s",
    min_calls=5,
    threshold=0.5,
    slow_after="4s",
    slow_threshold=0.5,
    cooldown="5s",
    max_cooldown="5s",
    trials=4,
    trials_to_close=3,
)


def test_resilience4j_rates_its_window_only_when_it_has_enough_calls() -> None:  # E20
    ring = Ring(BreakerPolicy(window=10, min_calls=10))

    def votes(calls: str) -> bool:
        for letter in calls:
            ring.ended(ring.started(0.0), Outcome.FAILED if letter == "F" else Outcome.OK, 0.0)
        return ring.vote(0.0)

    assert not votes("SSFF")  # four calls of ten: no rate yet
    assert votes("FFFFSSSS")  # twelve were made, ten are kept: 60 %
    assert not votes("SSS")  # 30 %


@pytest.mark.parametrize(
    ("calls", "every", "states"),
    [
        ("FFFSS", 0.0, "cccco"),  # 60 % at the fifth call, not before
        ("SSSFFF", 1.0, "ccccco"),  # 50 % is enough
        ("fsFSs", 0.0, "cccco"),  # 40 % failed, but 60 % were slow
        ("SSSSS", 0.0, "ccccc"),
        ("FFFSS", 6.0, "ccccc"),  # never five within the last 20 s
    ],
)
def test_resilience4j_closed(calls: str, every: float, states: str) -> None:  # E20
    assert Alone(R4J).play(calls, every=every) == states


@pytest.mark.parametrize(
    ("calls", "verdict"),
    [("FFSF", OPEN), ("FSSS", CLOSED), ("sssS", OPEN), ("SSSS", CLOSED), ("FSFS", OPEN)],
)
def test_resilience4j_half_open(calls: str, verdict: BreakerState) -> None:  # E22
    breaker = Alone(R4J, HALF_OPEN)
    for letter in calls:
        if breaker.state is HALF_OPEN:
            breaker.play(letter)
    assert breaker.state is verdict


def test_resilience4j_permits_four_calls_in_half_open_and_again_in_the_next() -> None:  # E22
    breaker = Alone(R4J, HALF_OPEN)
    permits = [breaker.permit() for _ in range(6)]
    assert [permit is not None for permit in permits] == [True] * 4 + [False] * 2
    breaker.end(permits[0] or "", Outcome.UNCOUNTED)  # an ignored exception releases its permission
    assert breaker.permit() is not None
    assert breaker.permit() is None
    breaker.end(permits[1] or "", Outcome.FAILED)
    breaker.end(permits[2] or "", Outcome.FAILED)
    assert breaker.state is OPEN
    breaker.pass_seconds(5)
    assert [breaker.permit() is not None for _ in range(6)] == [True] * 4 + [False] * 2


def test_resilience4j_waits_out_its_open_state() -> None:  # E22
    breaker = Alone(R4J, OPEN)
    breaker.pass_seconds(3)
    assert (breaker.state, breaker.permit()) == (OPEN, None)
    breaker.pass_seconds(3)
    assert breaker.permit() is not None
    assert breaker.state is HALF_OPEN


# -- failsafe-go ------------------------------------------------------------------------------------------------------
def of(failures: int, capacity: int, successes: int = 1, permits: int = 1) -> BreakerPolicy:
    """*failures* of the last *capacity* open it, *successes* of *permits* close it."""
    return BreakerPolicy(
        window=capacity,
        min_calls=capacity,
        threshold=failures / capacity,
        trials=permits,
        trials_to_close=successes,
    )


@pytest.mark.parametrize(
    ("policy", "calls", "states"),
    [
        (of(1, 1), "F", "o"),
        (of(1, 1), "S", "c"),
        (of(3, 3), "FSFFF", "cccco"),
        (of(2, 3), "FSF", "cco"),
        (of(3, 4), "SF" * 20, "c" * 40),
        (of(2, 2), "SF" * 20, "c" * 40),
    ],
)
def test_failsafe_closed(policy: BreakerPolicy, calls: str, states: str) -> None:  # E20
    assert Alone(policy).play(calls) == states


@pytest.mark.parametrize(
    ("successes", "permits", "calls", "states"),
    [
        (1, 1, "F", "o"),  # the default
        (1, 1, "S", "c"),
        (3, 3, "SSF", "hho"),  # three in a row
        (3, 3, "SF", "ho"),
        (3, 3, "F", "o"),
        (3, 3, "SSS", "hhc"),
        (2, 2, "SS", "hc"),
        (3, 4, "SFSF", "hhho"),  # three of four
        (3, 4, "SFSS", "hhhc"),
        (3, 4, "SSFS", "hhhc"),
        (2, 3, "FSF", "hho"),
        (2, 3, "FSS", "hhc"),
        (2, 4, "SFFF", "hhho"),
        # Without a success threshold of its own, half-open is left by the failure threshold: 3 in a row, or 2 of 3.
        (1, 3, "FFF", "hho"),
        (1, 3, "FS", "hc"),
    ],
)
def test_failsafe_half_open(successes: int, permits: int, calls: str, states: str) -> None:  # E22
    assert Alone(of(1, 1, successes, permits), HALF_OPEN).play(calls) == states


def test_failsafe_open_gives_permits_after_its_delay() -> None:  # E22
    breaker = Alone(BreakerPolicy(cooldown="100ms"), OPEN)
    assert breaker.permit() is None
    breaker.pass_seconds(0.11)
    assert breaker.permit() is not None


# -- pybreaker --------------------------------------------------------------------------------------------------------
def in_a_row(fail_max: int = 5, reset_timeout: float = 60, success_threshold: int = 1) -> BreakerPolicy:
    return BreakerPolicy(
        window=fail_max,
        min_calls=fail_max,
        threshold=1.0,
        cooldown=reset_timeout,
        max_cooldown=reset_timeout,
        trials=success_threshold,
        trials_to_close=success_threshold,
    )


@pytest.mark.parametrize(
    ("fail_max", "calls", "states"),
    [
        (3, "FFF", "cco"),
        (5, "FFFFF", "cccco"),
        (3, "FFSFF", "ccccc"),  # a success begins the count anew
        (3, "FFSFFF", "ccccco"),
    ],
)
def test_pybreaker_closed(fail_max: int, calls: str, states: str) -> None:  # E20
    assert Alone(in_a_row(fail_max)).play(calls) == states


def test_pybreaker_lets_the_next_call_pass_after_its_timeout_and_the_call_decides() -> None:  # E22
    for letter, state in (("S", "c"), ("F", "o")):
        breaker = Alone(in_a_row(), OPEN)
        breaker.pass_seconds(59.9)
        assert breaker.state is OPEN
        breaker.pass_seconds(0.2)
        assert breaker.play(letter) == state


def test_pybreaker_opens_again_until_another_timeout_has_passed() -> None:  # E22
    breaker = Alone(in_a_row(), HALF_OPEN)
    assert breaker.play("F") == "o"
    breaker.pass_seconds(59.9)
    assert breaker.state is OPEN
    breaker.pass_seconds(0.2)
    assert breaker.state is HALF_OPEN


@pytest.mark.parametrize(
    ("success_threshold", "calls", "states"),
    [(1, "S", "c"), (3, "SSS", "hhc"), (3, "SSF", "hho"), (2, "SS", "hc"), (1, "F", "o")],
)
def test_pybreaker_half_open(success_threshold: int, calls: str, states: str) -> None:  # E22
    assert Alone(in_a_row(3, 0.1, success_threshold), HALF_OPEN).play(calls) == states
