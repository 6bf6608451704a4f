"""Claim the first jobs of all lines that a worker serves, and of each key no more jobs than it has slots.

A line is the ready jobs of one lane and one priority, or of several priorities of one level.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from holdfast.engine.lane_store import Cap
from holdfast.jobs.job import Claimed, Lane, Lease, Session
from holdfast.jobs.moves import Kind
from holdfast.resilience import roster
from holdfast.resilience.fairness import UNPLACED, Turns
from holdfast.stores.columns import CLAIMED
from holdfast.stores.encoding import MOST_PER_EVENT, from_json, to_json
from holdfast.stores.sqlite import fairness, limits
from holdfast.stores.sqlite.facts import claim_facts
from holdfast.stores.sqlite.holds import open_lanes
from holdfast.stores.sqlite.many_lanes import FEW, LaneCrowd, LaneCrowds
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.times import maybe_duration

#: How many deferred jobs a claim makes ready first. Maintenance promotes the rest.
PROMOTE_FIRST = 1000
#: How many more jobs of a line are read when keys without a free slot have left the first ones unused.
READ_BEHIND = 100
#: Of many lines a claim reads at most this many times its limit of jobs, in at most this many rounds.
READ_WIDE, ROUNDS = 8, 8
#: After this many claims of fair lanes, stale passes of owners are deleted.
FORGET_EVERY = 1000

#: How stored values are read, by the type of their column: see `_ENCODERS` in `intake`.
_DECODERS: Mapping[str, Callable[[Any], Any]] = {"interval": partial(timedelta, 0, 0)}
#: The places in `CLAIMED` of values that are decoded.
_DECODED = [
    (place, _DECODERS[column.type]) for place, column in enumerate(CLAIMED) if column.type in _DECODERS
]
_FARTHEST = (1 << 63) - 1
#: The range of `prio` of each level.
_LEVELS = {"high": (-_FARTHEST, -1), "normal": (0, 0), "low": (1, _FARTHEST)}


class PriorityTurns:
    """What one process remembers from claim to claim: the turns of levels and lanes."""

    def __init__(self) -> None:
        self.levels = Turns()
        self.crowds = LaneCrowds()
        self.claims = 0

    def next(self) -> tuple[str, ...]:
        """Count a claim, and return the levels of priority in the order of its turns."""
        self.claims += 1
        return self.levels.next()


class KeySlots:
    """How many more jobs of each key one claim may take. Jobs that are processing take the slots, so nothing has to be freed."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()
        self._slots: dict[int, int] = {}  #: of jobs whose key has more than one slot, by job
        self.full: set[str] = set()  #: keys whose slots are all taken

    def read(self, move: Move, keyed: Mapping[int, str]) -> None:
        """Read how many slots the keys of these jobs (number → key) have, and how many are taken."""
        self._running.update(_running_of(move, set(keyed.values()) - self._running.keys()))
        rows = move.connection.execute(
            "SELECT id, key_slots FROM holdfast_job WHERE id IN (SELECT value FROM json_each(?)) AND key_slots IS NOT NULL",
            (to_json(list(keyed)),),
        )
        self._slots.update(rows.fetchall())

    def take(self, number: int, key: str) -> bool:
        """Take a slot of *key* for a job, and return whether there was one."""
        if self._running[key] >= self._slots.get(number, 1):
            self.full.add(key)
            return False
        self._running[key] += 1
        return True


def _running_of(move: Move, keys: Collection[str]) -> dict[str, int]:
    counts = dict.fromkeys(keys, 0)
    rows = move.connection.execute(
        "SELECT key, count(*) FROM holdfast_job WHERE phase = 2 AND key IN (SELECT value FROM json_each(?)) GROUP BY key",
        (to_json(list(keys)),),
    )
    return counts | dict(rows.fetchall())


class ClaimLine(NamedTuple):
    """A lane with ready jobs, whose `prio` is from *first* to *last*."""

    lane: int
    first: int
    last: int
    fair: bool


def claim(
    move: Move,
    turns: PriorityTurns,
    session: Session,
    lanes: Sequence[Lane],
    limit: int,
    caps: Sequence[Cap] = (),
    trial: bool = False,
) -> list[Claimed]:
    """Claim up to *limit* jobs of *lanes*, and return them. `engine.ports.Store.claim` is the contract."""
    if not is_live(move, session):
        return []
    promoted = move.run("promote", now=move.now, limit=PROMOTE_FIRST).fetchall()
    limit = min(limit, MOST_PER_EVENT)
    if caps:
        limit = limits.room(move, caps, limit)
    if limit <= 0:
        return []
    crowd = turns.crowds.find(move, lanes, caps) if len(lanes) > FEW else None
    if crowd is not None:
        crowd.add(promoted)
        ids = _pick_from_crowd(move, turns, crowd, limit, trial)
    else:
        lines = _lines(move, open_lanes(move.connection, move.now, lanes, trial))
        ids = _pick(move, turns, lines, limit) if lines else []
    return take(move, session, ids, caps) if ids else []


def is_live(move: Move, session: Session) -> bool:
    """Return whether the session has not ended."""
    row = move.connection.execute(
        "SELECT 1 FROM holdfast_session WHERE id = ? AND boot = ? AND expires_mono > ?",
        (session.id, move.boot, move.mono),
    ).fetchone()
    return row is not None


def take(move: Move, session: Session, ids: list[int], caps: Sequence[Cap] = ()) -> list[Claimed]:
    """Claim the ready jobs with these numbers, queued → processing, and return them."""
    # The epoch of the leases is the number of the event that records the claim, because that only grows.
    seq, listed = move.next_seq(), to_json(ids)
    move.run("claim", seq=seq, session=session.id, now=move.now, mono=move.mono, ids=listed)
    if caps:
        limits.occupy(move, caps, ids, seq)
    [(text,)] = move.run("claimed", ids=listed)
    rows = _read(text)
    lane_of, now = move.lane_of, move.now
    moves = [(row[0], seq, row[5], {"worker": session.worker}) for row in rows]
    facts = claim_facts((row[1], row[5], (now - row[10]) // 1000) for row in rows)
    move.record(seq, Kind.processing, moves, facts=facts)
    return [
        Claimed(
            Lease(uid, seq), lane_of[lane], -prio, key, payload, attempt, crashes, generation,
            maybe_duration(deadline_at - now) if deadline_at is not None else None,
            timedelta(microseconds=now - queued_at), *_decode(spec),
        )
        for uid, lane, prio, key, payload, attempt, crashes, generation, deadline_at, queued_at, _, *spec in rows
    ]  # fmt: skip


def _decode(spec: list[Any]) -> list[Any]:
    """Decode the columns of `CLAIMED` in place, and return them."""
    for place, decode in _DECODED:
        if spec[place] is not None:
            spec[place] = decode(spec[place])
    return spec


def _read(text: str) -> list[Any]:
    """Return the rows of `claimed`. A damaged payload is read loosely: its job fails in its task, and the others are claimed."""
    try:
        rows: list[Any] = from_json(text)
    except ValueError:
        rows = json.loads(text, strict=False)
    return rows


def _lines(move: Move, lanes: Sequence[Lane]) -> list[ClaimLine]:
    """Return those of *lanes* that have ready jobs."""
    existing = move.lanes.existing(move.lane_of, lanes)
    rows = move.run("lines", lanes=to_json(list(existing)))
    return [ClaimLine(number, first, last, existing[number].fair) for number, first, last in rows]


def _pick(move: Move, turns: PriorityTurns, lines: Sequence[ClaimLine], limit: int) -> list[int]:
    """Return the numbers of the first *limit* jobs of these lines. The level whose turn it is comes first."""
    levels = turns.next()
    for line in lines:
        if line.fair:
            fairness.place_waiting(move, line.lane)
            if turns.claims % FORGET_EVERY == 0:
                fairness.forget_flows(move, line.lane)
    picked: list[int] = []
    keys = KeySlots()
    for level in levels:
        first, last = _LEVELS[level]
        there = [line for line in lines if line.first <= last and line.last >= first]
        if there and len(picked) < limit:
            _pick_level(move, turns, there, (first, last), limit, picked, keys)
    return picked


def _pick_from_crowd(
    move: Move, turns: PriorityTurns, crowd: LaneCrowd, limit: int, trial: bool
) -> list[int]:
    """Return the numbers of up to *limit* jobs, from a few lines of very many lanes. The lines take turns."""
    levels = turns.next()
    crowd.update(move)
    picked: list[int] = []
    keys, seen = KeySlots(), set[tuple[int, int]]()
    more: dict[roster.RosterLine, int | None] = {}
    for _ in range(ROUNDS):
        chosen = crowd.choose(move, levels, limit - len(picked), trial)
        # A line may be listed under two owners, or the walk may have found it again.
        new = [line for line in chosen if line[:2] not in seen]
        seen.update(line[:2] for line in new)
        if new:
            more |= _pick_lines(move, turns, crowd, new, limit, picked, keys)
        if len(picked) == limit or (picked and crowd.rests(move) and not len(crowd.roster)):
            break
        if not len(crowd.roster) and not crowd.scan_all(move):
            break
    crowd.give_back(move, more)
    return picked


def _pick_lines(
    move: Move,
    turns: PriorityTurns,
    crowd: LaneCrowd,
    chosen: Sequence[roster.RosterLine],
    limit: int,
    picked: list[int],
    keys: KeySlots,
) -> dict[roster.RosterLine, int | None]:
    """Fill *picked* up to *limit* from these lines.

    Return the lines that may have more jobs, each with the number of its next job, or None where that was not read.
    """
    wide = min(limit, max(2, READ_WIDE * limit // len(chosen)))
    more: dict[roster.RosterLine, int | None] = {}
    for prio, together in groupby(chosen, key=lambda line: line.prio):
        listed = list(together)
        lines = [ClaimLine(one.lane, prio, prio, crowd.lanes[one.lane].fair) for one in listed]
        for line in lines:
            if line.fair:
                fairness.place_line(move, line.lane, prio)
        heads = _pick_level(move, turns, lines, (prio, prio), limit, picked, keys, wide)
        taken = set(picked)
        for one, head in zip(listed, heads, strict=True):
            left = [number for _, _, number, _ in head if number not in taken]
            if left or len(head) == wide:
                more[one] = left[0] if left else None
    return more


def _pick_level(
    move: Move,
    turns: PriorityTurns,
    lines: Sequence[ClaimLine],
    level: tuple[int, int],
    limit: int,
    picked: list[int],
    keys: KeySlots,
    wide: int | None = None,
) -> Sequence[list[Any]]:
    """Fill *picked* up to *limit* from one level, and of each key with no more jobs than it has slots.

    Read the first *wide* jobs of each line, by default the number that is still missing. Return the jobs that were read.
    """
    wanted = wide or limit - len(picked)
    heads = first = [_head(move, line, level, wanted) for line in lines]
    while heads:
        keyed = {number: key for head in heads for _, _, number, key in head if key is not None}
        if keyed:
            keys.read(move, keyed)
        for _, _, number, key in _in_order(lines, heads, turns):
            if len(picked) == limit:
                return first
            if key is None or keys.take(number, key):
                picked.append(number)
        # Only keys can leave jobs that were read unpicked. Without keys there is nothing to gain behind them.
        lines = [line for line, head in zip(lines, heads, strict=True) if keyed and len(head) == wanted]
        wanted = limit - len(picked)
        if not wanted:
            break
        # More than are missing, because the keys of the next jobs may have no free slot either.
        wanted = max(wanted, READ_BEHIND)
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
    """Return the place before which a line is read. The jobs of a fair line that are not placed are behind it."""
    return UNPLACED if line.fair else _FARTHEST


def _in_order(lines: Sequence[ClaimLine], heads: Sequence[list[Any]], turns: PriorityTurns) -> Iterable[Any]:
    """Return the jobs of *heads* in the order of claims: better priorities first.

    All plain lanes together are one line, oldest job first, and each fair lane is one. These lines take turns, because the
    passes of fair lanes and the times of plain lanes do not compare.
    """
    plain = heapq.merge(*(head for line, head in zip(lines, heads, strict=True) if not line.fair))
    fair = [head for line, head in zip(lines, heads, strict=True) if line.fair]
    if not fair:
        return plain
    return heapq.merge(
        *(
            _ranked(line, (place + turns.claims) % (len(fair) + 1))
            for place, line in enumerate([plain, *fair])
        )
    )


def _ranked(line: Iterable[Any], place: int) -> Iterator[Any]:
    """Yield the jobs of *line* with a rank, so that merged lines take turns: the first job of each, then the second."""
    rank, level = 0, None
    for prio, _, number, key in line:
        rank, level = (rank + 1 if prio == level else 0), prio
        yield prio, (rank, place), number, key
