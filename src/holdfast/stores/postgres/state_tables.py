"""The tables that say which state a job is in: exactly one of them has its id."""

from __future__ import annotations

from holdfast.jobs.moves import State

#: state → the tables whose jobs are in it
TABLES = {
    State.QUEUED: ("ready", "deferred"),
    State.PROCESSING: ("lease",),
    State.COMPLETE: ("done",),
    State.FAILED: ("done",),
    State.CANCELLED: ("done",),
}
COMPLETE, FAILED, CANCELLED = 3, 4, 5
#: The column `state` of the table `done` → state
STATES = {COMPLETE: State.COMPLETE, FAILED: State.FAILED, CANCELLED: State.CANCELLED}


def in_states(place: str, states: frozenset[State]) -> str:
    """Return the condition that a row of the table *place*, or `alias.table`, is a job in one of *states*."""
    alias, _, table = place.rpartition(".")
    if table != "done":
        return "true" if any(table in TABLES[state] for state in states) else "false"
    numbers = [number for number, state in STATES.items() if state in states]
    column = f"{alias}.state" if alias else "state"
    if len(numbers) == 1:
        return f"{column} = {numbers[0]}"
    return f"{column} IN ({', '.join(map(str, numbers))})" if numbers else "false"
