"""Fair lines: the owners of a lane are served in turn, because `ord` is a pass of `holdfast.domain.fairness`.

New jobs are placed as they are enqueued: SQLite has one writer at a time anyway. What comes back into line (retries,
releases, deferred jobs) enters unplaced, at its moment, and is placed by the next claim of its lane.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.domain.fairness import STRIDE, UNPLACED, place, stride
from holdfast.stores.encoding import to_json
from holdfast.stores.sqlite.move import SQL, Move

#: How many are placed by one claim, oldest first; more than a claim takes, so that the placed are never short.
BATCH = 5000
#: How many priorities of one lane are looked at.
_MOST_LINES = 100
#: A line that has come so far is moved back to zero: passes must stay below `UNPLACED`, however long a lane lives.
_FAR = UNPLACED >> 1
#: Stands for jobs without an owner; '' is anybody.
_NOBODY = "nobody"


def weigh(move: Move, weights: Mapping[str, float]) -> None:
    for weight in weights.values():
        stride(weight)  # refuses what is out of bounds
    move.connection.executemany(
        "INSERT OR REPLACE INTO holdfast_owner_weight (owner, weight) VALUES (?, ?)", weights.items()
    )


# -- entering a line ------------------------------------------------------------------------------------------------------
def enter(move: Move, lane: int, prio: int, owner: str | None) -> tuple[int, int]:
    """The places of new jobs of one owner: the first one's pass, and how far apart they stand. Then call `entered`.

    Of very many jobs of a very light owner some may come to stand beyond `UNPLACED`: they are placed when it is their turn.
    """
    owner = owner or _NOBODY
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
    """The last of an owner's new jobs was given this pass."""
    move.run("entered", lane=lane, prio=prio, owner=owner or _NOBODY, last=last)


def place_waiting(move: Move, lane: int) -> None:
    """Give those who came back into this lane's lines their passes."""
    for (prio,) in move.run("unplaced", lane=lane, unplaced=UNPLACED, most=_MOST_LINES).fetchall():
        _place_line(move, lane, prio)


def place_line(move: Move, lane: int, prio: int) -> None:
    """Give those who came back into this line their passes, if there are any."""
    [(anybody,)] = move.connection.execute(
        "SELECT EXISTS (SELECT 1 FROM holdfast_job WHERE phase = 0 AND lane = ? AND prio = ? AND ord >= ?)",
        (lane, prio, UNPLACED),
    )
    if anybody:
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
    owners = [owner or _NOBODY for _, owner in rows]
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
    # In order: of several passes of one owner the last stays.
    _remember(move, lane, prio, dict(zip(owners, passes, strict=True)))


def _pairs(move: Move, sql: str, *parameters: Any) -> dict[str, Any]:
    return dict(move.connection.execute(sql, parameters).fetchall())


def _remember(move: Move, lane: int, prio: int, passes: Mapping[str, int]) -> None:
    """These are the latest passes of their owners."""
    move.connection.executemany(
        SQL["entered"],
        [{"lane": lane, "prio": prio, "owner": owner, "last": last} for owner, last in passes.items()],
    )


def _move_back(move: Move, lane: int, prio: int, by: int) -> None:
    """Let the line begin at zero again. It costs a write for everybody in it, once in half a thousand million jobs."""
    move.connection.execute(
        "UPDATE holdfast_job SET ord = ord - ? WHERE phase = 0 AND lane = ? AND prio = ? AND ord < ?",
        (by, lane, prio, UNPLACED),
    )
    move.connection.execute(
        "UPDATE holdfast_flow SET last = last - ? WHERE lane = ? AND prio = ?", (by, lane, prio)
    )


# -- forgetting -----------------------------------------------------------------------------------------------------------
def forget_flows(move: Move, lane: int) -> None:
    """Forget the owners whose latest pass is so far behind that their next one will not be counted from it."""
    lines = move.connection.execute(
        "SELECT prio FROM holdfast_flow WHERE lane = ? AND owner = ''", (lane,)
    ).fetchall()
    for (prio,) in lines:
        head, newest, *_ = move.run("flow", lane=lane, prio=prio, owner="", unplaced=UNPLACED).fetchone()
        base = newest if head is None else head
        move.run("forget_flows", lane=lane, prio=prio, head=base, stride=STRIDE, limit=BATCH)
