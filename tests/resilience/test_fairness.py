"""Who is next: levels of priority by weight, owners by stride."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.resilience.fairness import HEAVIEST, LEVELS, LIGHTEST, STRIDE, Turns, level_of, place, stride

owners = st.sampled_from("abcde")
weights = st.dictionaries(owners, st.floats(0.1, 10))
passes = st.dictionaries(owners, st.integers(0, 100 * STRIDE))


@given(st.floats(LIGHTEST, HEAVIEST), st.floats(LIGHTEST, HEAVIEST))
def test_who_weighs_more_pays_less_and_nobody_nothing(one: float, other: float) -> None:  # E25
    lighter, heavier = sorted((one, other))
    assert stride(lighter) >= stride(heavier) >= 1


@pytest.mark.parametrize("weight", [0, -1, LIGHTEST / 2, HEAVIEST * 2, float("nan"), float("inf")])
def test_a_weight_beyond_the_bounds_is_refused(weight: float) -> None:  # E25
    with pytest.raises(UsageError, match="weight"):
        stride(weight)


@given(st.fixed_dictionaries({name: st.integers(1, 20) for name in LEVELS}), st.integers(1, 3))
def test_each_level_is_first_as_often_as_it_weighs(given_weights: dict[str, int], rounds: int) -> None:  # E25
    turns = Turns(given_weights)
    orders = [turns.next() for _ in range(rounds * sum(given_weights.values()))]
    assert Counter(order[0] for order in orders) == {
        name: rounds * weight for name, weight in given_weights.items()
    }
    assert {frozenset(order) for order in orders} == {frozenset(LEVELS)}  # nobody is left out of a claim
    assert [level_of(priority) for priority in LEVELS.values()] == list(LEVELS)


@given(st.lists(owners, max_size=20), passes, st.integers(0, 100 * STRIDE), weights)
def test_nobody_is_placed_before_the_head_nor_before_their_own(
    came: list[str], last: dict[str, int], head: int, given_weights: dict[str, float]
) -> None:  # E25
    placed = place(came, last, head, given_weights)
    latest = dict(last)
    for owner, at in zip(came, placed, strict=True):
        step = stride(given_weights.get(owner, 1.0))
        if owner in latest:
            assert at == max(head, latest[owner] + step)
        else:
            assert at == head  # whoever is new is served next
        latest[owner] = at


@given(st.lists(owners, max_size=20), st.integers(0, 20), passes, st.integers(0, 100 * STRIDE), weights)
def test_many_at_once_are_placed_as_one_by_one(
    came: list[str], cut: int, last: dict[str, int], head: int, given_weights: dict[str, float]
) -> None:  # E25
    before = place(came[:cut], last, head, given_weights)
    known = last | dict(zip(came[:cut], before, strict=True))
    assert before + place(came[cut:], known, head, given_weights) == place(came, last, head, given_weights)


@settings(max_examples=50)
@given(st.dictionaries(owners, st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=2))
def test_of_long_lines_everybody_is_served_by_weight(given_weights: dict[str, float]) -> None:  # E25
    """However the jobs came: here one owner's after the other's."""
    jobs = 200
    came = [owner for owner in given_weights for _ in range(jobs)]
    line = sorted(zip(place(came, {}, 0, given_weights), came, strict=True))
    first = Counter(owner for _, owner in line[:jobs])
    whole = sum(given_weights.values())
    for owner, weight in given_weights.items():
        assert abs(first[owner] - jobs * weight / whole) <= len(given_weights)
