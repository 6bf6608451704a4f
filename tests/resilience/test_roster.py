"""Whose turn it is among very many lines: a few are chosen, by priority, owner and age."""

from __future__ import annotations

import pytest

from holdfast.resilience.roster import CHECKS_PER_SECOND, Roster, RosterLine

LEVELS = ("normal", "high", "low")


def roster_of(*lines: RosterLine) -> Roster:
    roster = Roster()
    for line in lines:
        roster.add(line)
    return roster


def lines_of(owner: str, lanes: range, prio: int = 0) -> list[RosterLine]:
    return [RosterLine(lane, prio, owner) for lane in lanes]


def test_one_of_each_owner_comes_before_the_second_of_any() -> None:  # E25
    roster = roster_of(*lines_of("alice", range(10_000)), *lines_of("bob", range(20_000, 20_002)))
    chosen = roster.choose(LEVELS, 5)
    assert [line.owner for line in chosen] == ["alice", "bob", "alice", "bob", "alice"]
    assert [line.lane for line in chosen if line.owner == "alice"] == [0, 1, 2]  # the oldest first
    assert len(roster) == 10_000 - 3


def test_whoever_comes_new_has_the_next_turn_but_one() -> None:  # E25
    roster = roster_of(*lines_of("alice", range(100)))
    roster.choose(LEVELS, 10)
    roster.add(RosterLine(500, 0, "bob"))
    assert RosterLine(500, 0, "bob") in roster.choose(LEVELS, 2)


def test_levels_come_as_told_and_better_priorities_first() -> None:  # E25
    roster = roster_of(RosterLine(1, 0), RosterLine(2, -5), RosterLine(3, -9), RosterLine(4, 3))
    assert [line.lane for line in roster.choose(("normal", "high", "low"), 10)] == [1, 3, 2, 4]


def test_a_line_that_is_listed_under_two_owners_is_chosen_once_at_a_time() -> None:  # E25
    roster = roster_of(RosterLine(1, 0, "alice"), RosterLine(1, 0, "bob"), RosterLine(1, 0, "bob"))
    assert roster.choose(LEVELS, 10) == [RosterLine(1, 0, "alice")]
    assert roster.choose(LEVELS, 10) == [RosterLine(1, 0, "bob")]
    assert roster.choose(LEVELS, 10) == []


def test_held_lines_are_put_aside_and_come_back() -> None:  # E27
    lines = lines_of("alice", range(4 * CHECKS_PER_SECOND))
    roster = roster_of(*lines)
    held = roster.choose(LEVELS, len(lines) - 1)
    roster.hold(held, 100.0)
    roster.add(held[0])  # the walk finds it again
    assert len(roster) == 1
    roster.wake(100.5)
    assert len(roster) == 1
    roster.wake(101.0)
    assert len(roster) == pytest.approx(CHECKS_PER_SECOND, abs=2)  # no more of them in a second
    roster.wake()  # something was resumed
    assert len(roster) == len(lines)
