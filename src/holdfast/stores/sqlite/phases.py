"""The phases of a job, as its row has them. `queued` has two, because a job that is due later cannot be claimed yet."""

from __future__ import annotations

from holdfast.jobs.moves import State

READY, DEFERRED, PROCESSING, COMPLETE, FAILED, CANCELLED = range(6)

#: phase → state
STATES = (State.QUEUED, State.QUEUED, State.PROCESSING, State.COMPLETE, State.FAILED, State.CANCELLED)


def in_states(column: str, states: frozenset[State]) -> str:
    """Return the condition that the phase in *column* is one of *states*."""
    phases = [phase for phase, state in enumerate(STATES) if state in states]
    if len(phases) == 1:
        return f"{column} = {phases[0]}"
    if phases == list(range(len(phases))) and phases:
        return f"{column} <= {phases[-1]}"  # the form of the partial index on deadlines
    return f"{column} IN ({', '.join(map(str, phases))})"
