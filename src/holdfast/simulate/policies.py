"""What is done about it: values of the same kinds that production is given."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.domain.breaker import BreakerPolicy
from holdfast.domain.budget import BudgetPolicy
from holdfast.domain.guard import DependencyPolicy
from holdfast.domain.limiter import LimiterPolicy
from holdfast.domain.policy import Retry

#: As many services and clients are set up: 25 attempts over hours, spread as widely as can be.
PATIENT = Retry(25, base="1s", factor=2, jitter="full", cap="300s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """A policy under test."""

    name: str
    about: str
    dependency: DependencyPolicy
    retry: Retry = PATIENT
    hold_lane: bool = False  #: whether one answer's Retry-After keeps the whole lane


def _only(
    *,
    breaker: BreakerPolicy | None = None,
    limiter: LimiterPolicy | None = None,
    budget: BudgetPolicy | None = None,
) -> DependencyPolicy:
    return DependencyPolicy(breaker=breaker, limiter=limiter, budget=budget)


BACKOFF = Play(name="backoff", about="backoff and jitter only", dependency=_only())
BREAKER = Play(
    name="breaker",
    about="a breaker that releases all on closing",
    dependency=_only(breaker=BreakerPolicy()),
)
BUDGET = Play(name="budget", about="a retry budget", dependency=_only(budget=BudgetPolicy()))
LIMITER = Play(
    name="limiter",
    about="adaptive limit and retry budget",
    dependency=_only(limiter=LimiterPolicy(), budget=BudgetPolicy()),
)
EVERYTHING = Play(
    name="everything",
    about="breaker with ramp, adaptive limit, retry budget: the default",
    dependency=DependencyPolicy(),
    hold_lane=True,
)

PLAYS = {play.name: play for play in (BACKOFF, BREAKER, BUDGET, LIMITER, EVERYTHING)}
