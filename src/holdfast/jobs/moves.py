"""The states of a job and every legal move between them, as data.

    enqueue ─► queued ─claim─► processing ─complete─► complete
                 ▲  ▲              │ │ └──fail/reclaim/time_out──► failed ──┐
                 │  └─fail/release─┘ └──cancel──► cancelled ────────────────┤
                 └───────────────────── retry ──────────────────────────────┘

The statements of the stores, the stateful test and the diagram in the docs are made from `MOVES`.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class State(StrEnum):
    """The five states of a job."""

    QUEUED = "queued"
    PROCESSING = "processing"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"


Q, P, C, F, X = State

#: verb → (states it may start from, states it may end in). An empty start means that the job is new.
MOVES: dict[str, tuple[frozenset[State], frozenset[State]]] = {
    "enqueue": (frozenset(), frozenset({Q})),
    "claim": (frozenset({Q}), frozenset({P})),
    "extend": (frozenset({P}), frozenset({P})),
    "complete": (frozenset({P}), frozenset({C})),
    "fail": (frozenset({P}), frozenset({Q, F})),
    "release": (frozenset({P}), frozenset({Q})),
    "reclaim": (frozenset({P}), frozenset({Q, F})),
    "time_out": (frozenset({Q, P}), frozenset({F})),
    "reject": (frozenset(), frozenset({F})),
    "cancel": (frozenset({Q, P}), frozenset({X})),
    "retry": (frozenset({Q, P, F, X}), frozenset({Q})),  # waiting, stuck, failed, cancelled
    "purge": (frozenset({C}), frozenset({C})),
}

FINISHED = frozenset({C, F, X})


def allows(verb: str, state: State) -> bool:
    """Return whether a job in *state* may make the move *verb*."""
    return state in MOVES[verb][0]


class Kind(IntEnum):
    """The kinds of events. The numbers are stored, so they never change; people see the names."""

    queued = 1
    processing = 2
    complete = 3
    retry = 4
    failed = 5
    released = 6
    snoozed = 7
    reclaimed = 8
    timed_out = 9
    cancelled = 10
    manual_retry = 11
    redriven = 12
    rejected = 13
    expired = 14
    late_result = 15
    stale_write = 16
    discarded = 17
    breaker_opened = 18
    breaker_closed = 19
    breaker_half_open = 20
    paused = 21
    resumed = 22
    breached = 23
    compensated = 24
    operation_began = 25
    operation_ended = 26
    override_set = 27
    override_unset = 28
    override_expired = 29


#: Events that are recorded without a move of the job: a broken promise about it, a compensation.
NOTES = frozenset({Kind.breached, Kind.compensated})
