"""Fair lines: the owners of a lane are served in turn, because `ord` is a pass of `holdfast.resilience.fairness`.

New jobs get their places when they are enqueued, because SQLite has one writer at a time anyway. Jobs that become ready again
(retries, releases, deferred jobs) enter unplaced, with the time as their `ord`. The next claim of their lane places them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.resilience.fairness import STRIDE, UNPLACED, place, stride
from holdfast.stores.encoding import to_json
from holdfast.stores.sqlite.move import SQL, Move

#: How many jobs one claim places, oldest first. More than a claim takes, so that there are always enough placed jobs.
BATCH = 5000
#: How many priorities of one lane are read.
_MOST_LINES = 100
#: A line whose passes have reached this is moved back to zero, because passes must stay below `UNPLACED`.
_FAR = UNPLACED >> 1
#: The owner of jobs without an owner. '' stands for all owners.
_NO_OWNER = "nobody"


def weigh(move: Move, weights: Mapping[str, float]) -> None:
    """Store the weights of owners. Raises `UsageError` for a weight that is out of bounds."""
    for weight in weights.values():
        stride(weight)
    move.connection.executemany(
        "INSERT OR REPLACE INTO holdfast_owner_weight (owner, weight) VALUES (?, ?)", weights.items()
    )


# -- entering a line ------------------------------------------------------------------------------------------------------
def enter(move: Move, lane: int, prio: int, owner: str | None) -> tuple[int, int]:
    """Return the pass of the first new job of one owner, and the distance between its jobs. Then call `entered`.

    Very many jobs of an owner with a very small weight may get places beyond `UNPLACED`. Later claims place those.
    """
    owner = owner or _NO_OWNER
    head, newest, last, weight = move.run(
        "flow", lane=lane, prio=prio, owner=owner, unplaced=UNPLACED
    ).fetchone()
    base = newest or 0 if head is None else head
    if base >= _FAR:
        _move_back(move, lane, prio, base)
        return enter(move, lane, prio, owner)
    weights = {} if weight is None else {owner: weight}
    [first] = place([owner], {} if last is None else {owner: last}, base, weights)
    return first, stride(weights.get(owner, 1.0))


def entered(move: Move, lane: int, prio: int, owner: str | None, last: int) -> None:
    """Record *last* as the pass of the owner's last new job."""
    move.run("entered", lane=lane, prio=prio, owner=owner or _NO_OWNER, last=last)


def place_waiting(move: Move, lane: int) -> None:
    """Place the unplaced jobs of all lines of this lane."""
    for (prio,) in move.run("unplaced", lane=lane, unplaced=UNPLACED, most=_MOST_LINES).fetchall():
        _place_line(move, lane, prio)


def place_line(move: Move, lane: int, prio: int) -> None:
    """Place the unplaced jobs of this line, if there are any."""
    [(any_unplaced,)] = move.connection.execute(
        "SELECT EXISTS (SELECT 1 FROM holdfast_job WHERE phase = 0 AND lane = ? AND prio = ? AND ord >= ?)",
        (lane, prio, UNPLACED),
    )
    if any_unplaced:
        _place_line(move, lane, prio)


def _place_line(move: Move, lane: int, prio: int) -> None:
    rows = move.connection.execute(
        "SELECT id, owner FROM holdfast_job WHERE phase = 0 AND lane = ? AND prio = ? AND ord >= ? ORDER BY ord, id LIMIT ?",
        (lane, prio, UNPLACED, BATCH),
    ).fetchall()
    head, newest, *_ = move.run("flow", lane=lane, prio=prio, owner="", unplaced=UNPLACED).fetchone()
    base = newest or 0 if head is None else head
    if base >= _FAR:
        _move_back(move, lane, prio, base)
        base = 0
    owners = [owner or _NO_OWNER for _, owner in rows]
    listed = to_json(sorted(set(owners)))
    last = _pairs(
        move,
        "SELECT owner, last FROM holdfast_flow WHERE lane = ? AND prio = ? AND owner IN (SELECT value FROM json_each(?))",
        lane,
        prio,
        listed,
    )
    weights = _pairs(
        move,
        "SELECT owner, weight FROM holdfast_owner_weight WHERE owner IN (SELECT value FROM json_each(?))",
        listed,
    )
    passes = place(owners, last, base, weights)
    move.connection.executemany(
        "UPDATE holdfast_job SET ord = min(?, ?) WHERE id = ?",
        [(turn, UNPLACED - 1, number) for turn, (number, _) in zip(passes, rows, strict=True)],
    )
    # The dict keeps the last of several passes of one owner.
    _remember(move, lane, prio, dict(zip(owners, passes, strict=True)))


def _pairs(move: Move, sql: str, *parameters: Any) -> dict[str, Any]:
    return dict(move.connection.execute(sql, parameters).fetchall())


def _remember(move: Move, lane: int, prio: int, passes: Mapping[str, int]) -> None:
    """Record the latest pass of each owner."""
    move.connection.executemany(
        SQL["entered"],
        [{"lane": lane, "prio": prio, "owner": owner, "last": last} for owner, last in passes.items()],
    )


def _move_back(move: Move, lane: int, prio: int, by: int) -> None:
    """Let the line begin at zero again. This writes each of its jobs, once in half a billion jobs."""
    move.connection.execute(
        "UPDATE holdfast_job SET ord = ord - ? WHERE phase = 0 AND lane = ? AND prio = ? AND ord < ?",
        (by, lane, prio, UNPLACED),
    )
    move.connection.execute(
        "UPDATE holdfast_flow SET last = last - ? WHERE lane = ? AND prio = ?", (by, lane, prio)
    )


# -- forgetting -----------------------------------------------------------------------------------------------------------
def forget_flows(move: Move, lane: int) -> None:
    """Delete the passes of owners that are so old that the next pass will not be counted from them."""
    lines = move.connection.execute(
        "SELECT prio FROM holdfast_flow WHERE lane = ? AND owner = ''", (lane,)
    ).fetchall()
    for (prio,) in lines:
        head, newest, *_ = move.run("flow", lane=lane, prio=prio, owner="", unplaced=UNPLACED).fetchone()
        base = newest if head is None else head
        move.run("forget_flows", lane=lane, prio=prio, head=base, stride=STRIDE, limit=BATCH)
