"""The legal moves, and the numbers that events are stored by."""

from __future__ import annotations

from holdfast.jobs.moves import FINISHED, MOVES, Kind, State

Q, P, C, F, X = State

#: The table of SPEC E2, written out once more by hand.
TABLE = {
    "enqueue": (set(), {Q}),
    "claim": ({Q}, {P}),
    "extend": ({P}, {P}),
    "complete": ({P}, {C}),
    "fail": ({P}, {Q, F}),
    "release": ({P}, {Q}),
    "reclaim": ({P}, {Q, F}),
    "time_out": ({Q, P}, {F}),
    "reject": (set(), {F}),
    "cancel": ({Q, P}, {X}),
    "retry": ({F, X, Q, P}, {Q}),
    "purge": ({C}, {C}),
}

#: Stored in databases: a number never gets another name.
NUMBERS = {
    "queued": 1,
    "processing": 2,
    "complete": 3,
    "retry": 4,
    "failed": 5,
    "released": 6,
    "snoozed": 7,
    "reclaimed": 8,
    "timed_out": 9,
    "cancelled": 10,
    "manual_retry": 11,
    "redriven": 12,
    "rejected": 13,
    "expired": 14,
    "late_result": 15,
    "stale_write": 16,
    "discarded": 17,
    "breaker_opened": 18,
    "breaker_closed": 19,
}


def test_there_are_five_states() -> None:  # E1
    assert [str(state) for state in State] == ["queued", "processing", "complete", "failed", "cancelled"]


def test_the_moves_are_those_of_the_table() -> None:  # E2
    assert {verb: (set(starts), set(ends)) for verb, (starts, ends) in MOVES.items()} == TABLE


def test_a_finished_job_moves_only_by_retry_and_purge() -> None:  # E2 E5
    leaving = {verb for verb, (starts, _) in MOVES.items() if starts & FINISHED}
    assert leaving == {"retry", "purge"}
    assert State.COMPLETE not in MOVES["retry"][0]


def test_every_state_can_be_reached_and_every_unfinished_one_left() -> None:  # E2
    assert {state for _, ends in MOVES.values() for state in ends} == set(State)
    for state in set(State) - FINISHED:
        assert any(state in starts and ends - {state} for starts, ends in MOVES.values())


def test_the_numbers_of_kinds_are_unique_and_never_change() -> None:  # E60
    stored = {name: int(kind) for name, kind in Kind.__members__.items()}
    assert len(set(stored.values())) == len(stored)
    assert stored | NUMBERS == stored


def test_every_event_the_sources_name_is_a_kind() -> None:  # E60
    assert {"queued", "processing", "retry", "complete", "failed", "expired"} <= set(Kind.__members__)
