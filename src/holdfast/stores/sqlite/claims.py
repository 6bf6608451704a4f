"""Claiming: the first jobs over all the lines a worker serves, of one key no more than it has slots."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any, NamedTuple

from holdfast.domain import roster
from holdfast.domain.fairness import UNPLACED, Turns
from holdfast.domain.job import Claimed, Lane, Lease, Session
from holdfast.domain.moves import Kind
from holdfast.engine.lane_store import Cap
from holdfast.stores.encoding import MOST_PER_EVENT, from_json, to_json
from holdfast.stores.sqlite import fairness, limits
from holdfast.stores.sqlite.holds import open_lanes
from holdfast.stores.sqlite.key_slots import KeySlots
from holdfast.stores.sqlite.many_lanes import LaneCrowd, LaneCrowds
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.times import maybe_duration

#: How many deferred jobs a claim lets into line on its way; the duty `promote` sees to the rest.
PROMOTE_FIRST = 1000
#: How many are looked at behind a head that keys have left unused.
LOOK_BEHIND = 100
#: Of many lines a claim looks at no more jobs than this many times as many as it wants, in this many rounds at the most.
LOOK_WIDE, ROUNDS = 8, 8
#: After this many claims of fair lanes, owners whose entries are stale are removed.
FORGET_EVERY = 1000

_FARTHEST = (1 << 63) - 1
#: The priorities of a level, negated as the rows have them.
_LEVELS = {"high": (-_FARTHEST, -1), "normal": (0, 0), "low": (1, _FARTHEST)}


class PriorityTurns:
    """Whose turn it is, from claim to claim of one process."""

    def __init__(self) -> None:
        self.levels = Turns()
        self.crowds = LaneCrowds()
        self.claims = 0

    def next(self) -> tuple[str, ...]:
        self.claims += 1
        return self.levels.next()


class ClaimLine(NamedTuple):
    """A lane with somebody in it, between these priorities (negated)."""

    lane: int
    first: int
    last: int
    fair: bool


def claim(
    move: Move,
    rota: PriorityTurns,
    session: Session,
    lanes: Sequence[Lane],
    limit: int,
    caps: Sequence[Cap] = (),
    trial: bool = False,
) -> list[Claimed]:
    if not is_live(move, session):
        return []
    promoted = move.run("promote", now=move.now, limit=PROMOTE_FIRST).fetchall()
    limit = limits.room(move, caps, min(limit, MOST_PER_EVENT))
    if not limit:
        return []
    crowd = rota.crowds.find(move, lanes, caps)
    if crowd is not None:
        crowd.add(promoted)
        ids = _pick_from_crowd(move, rota, crowd, limit, trial)
    else:
        lines = _lines(move, open_lanes(move.connection, move.now, lanes, trial))
        ids = _pick(move, rota, lines, limit) if lines else []
    return take(move, session, ids, caps) if ids else []


def is_live(move: Move, session: Session) -> bool:
    row = move.connection.execute(
        "SELECT 1 FROM holdfast_session WHERE id = ? AND boot = ? AND expires_mono > ?",
        (session.id, move.boot, move.mono),
    ).fetchone()
    return row is not None


def take(move: Move, session: Session, ids: list[int], caps: Sequence[Cap] = ()) -> list[Claimed]:
    """These, which are in line: queued → processing."""
    # The number of the event that records the claim is the epoch of every lease it gives: it only grows.
    seq, listed = move.next_seq(), to_json(ids)
    move.run("claim", seq=seq, session=session.id, now=move.now, mono=move.mono, ids=listed)
    limits.occupy(move, caps, ids, seq)
    [(text,)] = move.run("claimed", ids=listed)
    rows = _read(text)
    move.record(seq, Kind.processing, [(row[0], seq, row[3], {"worker": session.worker}) for row in rows])
    lane_of, now = move.lane_of, move.now
    return [
        Claimed(
            Lease(uid, seq), lane_of[lane], payload, attempt, most, crashes, generation, owner, key,
            maybe_duration(timeout), maybe_duration(deadline_at - now) if deadline_at is not None else None,
            timedelta(microseconds=now - queued_at), maybe_duration(start_within), version, trace, -prio,
        )
        for (uid, lane, payload, attempt, most, crashes, generation, owner, key, timeout, deadline_at, queued_at,
             start_within, version, trace, prio) in rows
    ]  # fmt: skip


def _read(text: str) -> list[Any]:
    """The rows of `claimed`. One damaged payload must not hide the others: read loosely, it fails alone, at its task."""
    try:
        rows: list[Any] = from_json(text)
    except ValueError:
        rows = json.loads(text, strict=False)
    return rows


def _lines(move: Move, lanes: Sequence[Lane]) -> list[ClaimLine]:
    """The lanes that have somebody in line."""
    existing = move.lanes.existing(move.lane_of, lanes)
    rows = move.run("lines", lanes=to_json(list(existing)))
    return [ClaimLine(number, first, last, existing[number].fair) for number, first, last in rows]


def _pick(move: Move, rota: PriorityTurns, lines: Sequence[ClaimLine], limit: int) -> list[int]:
    """The first *limit* jobs over all these lines, from the level whose turn it is, then from the others."""
    levels = rota.next()
    for line in lines:
        if line.fair:
            fairness.place_waiting(move, line.lane)
            if rota.claims % FORGET_EVERY == 0:
                fairness.forget_flows(move, line.lane)
    picked: list[int] = []
    keys = KeySlots()
    for level in levels:
        first, last = _LEVELS[level]
        there = [line for line in lines if line.first <= last and line.last >= first]
        if there and len(picked) < limit:
            _pick_level(move, rota, there, (first, last), limit, picked, keys)
    return picked


def _pick_from_crowd(move: Move, rota: PriorityTurns, crowd: LaneCrowd, limit: int, trial: bool) -> list[int]:
    """The same over very many lanes: from a few lines, which take turns."""
    levels = rota.next()
    crowd.look(move)
    picked: list[int] = []
    keys, seen = KeySlots(), set[tuple[int, int]]()
    more: dict[roster.RosterLine, int | None] = {}
    for _ in range(ROUNDS):
        chosen = crowd.choose(move, levels, limit - len(picked), trial)
        # A line that is listed under two owners, or that the walk has found again, is not picked from twice.
        new = [line for line in chosen if line[:2] not in seen]
        seen.update(line[:2] for line in new)
        if new:
            more |= _pick_lines(move, rota, crowd, new, limit, picked, keys)
        if len(picked) == limit or (picked and crowd.rests(move) and not len(crowd.roster)):
            break
        if not len(crowd.roster) and not crowd.scan_all(move):
            break
    crowd.give_back(move, more)
    return picked


def _pick_lines(
    move: Move,
    rota: PriorityTurns,
    crowd: LaneCrowd,
    chosen: Sequence[roster.RosterLine],
    limit: int,
    picked: list[int],
    keys: KeySlots,
) -> dict[roster.RosterLine, int | None]:
    """Fill *picked* up to *limit* from these lines; return those that may have more, with the next job where it was seen."""
    wide = min(limit, max(2, LOOK_WIDE * limit // len(chosen)))
    more: dict[roster.RosterLine, int | None] = {}
    for prio, together in groupby(chosen, key=lambda line: line.prio):
        listed = list(together)
        lines = [ClaimLine(one.lane, prio, prio, crowd.lanes[one.lane].fair) for one in listed]
        for line in lines:
            if line.fair:
                fairness.place_line(move, line.lane, prio)
        heads = _pick_level(move, rota, lines, (prio, prio), limit, picked, keys, wide)
        taken = set(picked)
        for one, head in zip(listed, heads, strict=True):
            left = [number for _, _, number, _ in head if number not in taken]
            if left or len(head) == wide:
                more[one] = left[0] if left else None
    return more


def _pick_level(
    move: Move,
    rota: PriorityTurns,
    lines: Sequence[ClaimLine],
    level: tuple[int, int],
    limit: int,
    picked: list[int],
    keys: KeySlots,
    wide: int | None = None,
) -> Sequence[list[Any]]:
    """Fill *picked* up to *limit* from one level: of one key no more than it has slots. Look at *wide* jobs of each line,
    or at as many as are wanted; return what was seen of them."""
    wanted = wide or limit - len(picked)
    heads = first = [_head(move, line, level, wanted) for line in lines]
    while heads:
        keyed = {number: key for head in heads for _, _, number, key in head if key is not None}
        if keyed:
            keys.look(move, keyed)
        for _, _, number, key in _in_order(lines, heads, rota):
            if len(picked) == limit:
                return first
            if key is None or keys.take(number, key):
                picked.append(number)
        # Only keys can leave a head unused: without any there is nothing to look for behind it.
        lines = [line for line, head in zip(lines, heads, strict=True) if keyed and len(head) == wanted]
        wanted = limit - len(picked)
        if not wanted:
            break
        # More than are wanted: whose keys are used up too is learnt only by looking.
        wanted = max(wanted, LOOK_BEHIND)
        heads = [_behind(move, line, level, wanted, picked, keys) for line in lines]
    return first


def _head(move: Move, line: ClaimLine, level: tuple[int, int], limit: int) -> list[Any]:
    first, last = level
    row = move.run(
        "head", lane=line.lane, first=first, last=last, before=_end_of(line), limit=limit
    ).fetchone()
    head: list[Any] = from_json(row[0])
    return head


def _behind(
    move: Move, line: ClaimLine, level: tuple[int, int], limit: int, picked: list[int], keys: KeySlots
) -> list[Any]:
    row = move.run(
        "behind",
        lane=line.lane,
        first=level[0],
        last=level[1],
        before=_end_of(line),
        limit=limit,
        full=to_json(list(keys.full)),
        picked=to_json(picked),
    ).fetchone()
    head: list[Any] = from_json(row[0])
    return head


def _end_of(line: ClaimLine) -> int:
    """In a fair line those who are not placed yet stand behind this."""
    return UNPLACED if line.fair else _FARTHEST


def _in_order(lines: Sequence[ClaimLine], heads: Sequence[list[Any]], rota: PriorityTurns) -> Iterable[Any]:
    """Better priorities first. Plain lanes make one line, oldest first; each fair lane is one: all these are served in turn,
    because passes and moments do not compare."""
    plain = heapq.merge(*(head for line, head in zip(lines, heads, strict=True) if not line.fair))
    fair = [head for line, head in zip(lines, heads, strict=True) if line.fair]
    if not fair:
        return plain
    return heapq.merge(
        *(_ranked(line, (place + rota.claims) % (len(fair) + 1)) for place, line in enumerate([plain, *fair]))
    )


def _ranked(line: Iterable[Any], place: int) -> Iterator[Any]:
    """In one line with others: the first of each, then the second of each."""
    rank, level = 0, None
    for prio, _, number, key in line:
        rank, level = (rank + 1 if prio == level else 0), prio
        yield prio, (rank, place), number, key
