"""The game itself, a fifth of its size: what each policy makes of each trouble."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from holdfast.resilience.breaker import BreakerState
from holdfast.simulate.figures import Figures
from holdfast.simulate.policies import BACKOFF, BREAKER, EVERYTHING, LIMITER, POLICIES, SimulatedPolicy
from holdfast.simulate.scenarios import BAD_WORKER, BROWN_OUT, OUTAGE, POISON, SCENARIOS, WINDOW, Scenario
from holdfast.simulate.world import World, simulate


def small(scenario: Scenario, **knobs: float) -> Scenario:
    """A fifth of the service, of the jobs and of the slots; about half as long."""
    size = replace(scenario, arrivals=12, servers=2, slots=30)
    if scenario.name == "throttling":
        size = replace(size, amount=8)
    if scenario.name == "outage":
        size = replace(size, begins=30, ends=150, seconds=700)
    if scenario.name == "flapping":
        size = replace(
            size, seconds=1600
        )  # a trial may meet a bad phase four times, and then waits five minutes
    return replace(size, **knobs)  # type: ignore[arg-type]


def play(scenario: Scenario, policy: SimulatedPolicy, seed: int = 1) -> Figures:
    """Several tests look at the same game: it is played once, for they run in one process."""
    game = repr((scenario, policy, seed))
    if game not in _played:
        _played[game] = simulate(scenario, policy, random.Random(seed))
    return _played[game]


_played: dict[str, Figures] = {}


@pytest.mark.parametrize("name", SCENARIOS)
def test_with_everything_on_nearly_all_jobs_are_done_at_about_one_call_each(
    name: str,
) -> None:  # E75, E22, E23
    game = play(small(SCENARIOS[name]), EVERYTHING, seed=2)  # the page's games are played with the first
    assert game.share_done >= 0.99
    assert game.calls_per_job is not None
    # A smaller game has the same few trials to pay for by fewer jobs; a poison job is called until it is given up.
    assert game.calls_per_job <= (1.1 if name in ("outage", "brown-out", "window", "bad-worker") else 1.15)


@pytest.mark.parametrize("scenario", [OUTAGE, BROWN_OUT, WINDOW], ids=lambda scenario: scenario.name)
@pytest.mark.parametrize("policy", [BACKOFF, BREAKER], ids=lambda policy: policy.name)
def test_without_a_limit_the_crowd_keeps_the_service_down(
    scenario: Scenario, policy: SimulatedPolicy
) -> None:  # E75
    game = play(small(scenario), policy)
    assert game.share_done < 0.5
    assert game.drained is None


@pytest.mark.parametrize("policy", POLICIES.values(), ids=lambda policy: policy.name)
def test_holding_and_putting_off_burn_no_attempt(policy: SimulatedPolicy) -> None:  # E9, E17, E21
    game = play(small(OUTAGE), policy)
    assert game.burnt == 0


def test_the_breaker_spares_the_service_during_the_outage() -> None:  # E20
    def calls_in_outage(policy: SimulatedPolicy) -> int:
        game = play(small(OUTAGE), policy)
        return sum(game.calls_per_bin[5:15])  # from well after the trip to the end

    assert calls_in_outage(EVERYTHING) <= 12  # four rounds of three trials at most
    assert calls_in_outage(LIMITER) > 12
    assert calls_in_outage(BACKOFF) > 1000


def test_recovery_is_noticed_within_a_cooldown_and_nothing_opens_again() -> None:  # E22
    game = play(small(OUTAGE, ends=60), EVERYTHING)
    assert game.opened == 1
    assert sum(game.done_per_bin[7:8]) > 0


def test_one_bad_worker_stops_itself_and_not_the_fleet() -> None:  # E20
    game = play(small(BAD_WORKER), EVERYTHING)
    assert game.opened == 0
    refused = game.calls - game.done
    assert refused <= 10 + 4 * 3 + 5  # its first failures, its own trials, what was under way at the end


def test_poison_jobs_open_no_breaker_and_delay_nobody() -> None:  # E20
    game = play(small(POISON), EVERYTHING)
    assert (game.opened, game.drained) == (0, 0.0)


def test_the_same_seed_plays_the_same_game() -> None:  # E75
    first, other = (play(small(OUTAGE), EVERYTHING, seed) for seed in (1, 2))
    assert simulate(small(OUTAGE), EVERYTHING, random.Random(1)) == first
    assert first != other


def test_no_more_trials_run_than_there_are_slots() -> None:  # E22
    scenario = small(OUTAGE)
    world = World(scenario, EVERYTHING, random.Random(1))
    most = 0

    def watch(value: None) -> None:
        nonlocal most
        trials = [attempt for attempt in world._running if attempt.holder is not None and not attempt.ended]
        most = max(most, len(trials))
        if trials:
            assert world._shared.state is not BreakerState.CLOSED or len(trials) <= 1
        world._later(0.1, watch, None)

    world._later(0.0, watch, None)
    world.run()
    assert 2 <= most <= 3


def test_a_service_at_ease_answers_all_in_time() -> None:  # E75
    calm = small(OUTAGE, begins=1e9, ends=1e9, seconds=120)
    for policy in POLICIES.values():
        game = play(calm, policy)
        assert game.calls == game.arrived
        assert game.share_done > 0.99


def test_a_game_too_short_for_anything_is_told_without_a_ratio() -> None:  # E75
    game = play(small(WINDOW, seconds=20), BACKOFF)
    assert (game.done, game.calls_per_job, game.drained) == (0, None, None)
    assert play(small(WINDOW, seconds=20, arrivals=0.001), BACKOFF).share_done == 0.0
