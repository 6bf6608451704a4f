"""Claiming: the first jobs over all the lines a worker serves, of one key at most one at a time."""

from __future__ import annotations

import heapq
import json
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from holdfast.domain.job import Claimed, Lane, Lease, Session
from holdfast.domain.moves import Kind
from holdfast.stores.shapes import MOST_PER_EVENT, from_json, to_json
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.times import maybe_duration

#: How many deferred jobs a claim lets into line on its way; the duty `promote` sees to the rest.
PROMOTE_FIRST = 1000


def claim(move: Move, session: Session, lanes: Sequence[Lane], limit: int) -> list[Claimed]:
    live = move.connection.execute(
        "SELECT 1 FROM holdfast_session WHERE id = ? AND boot = ? AND expires_mono > ?",
        (session.id, move.boot, move.mono),
    ).fetchone()
    if live is None:
        return []
    move.run("promote", now=move.now, limit=PROMOTE_FIRST)
    limit = min(limit, MOST_PER_EVENT)
    ids = _pick(
        move, [number for lane in lanes if (number := move.lanes.known(move.connection, lane))], limit
    )
    if not ids:
        return []
    # The number of the event that records the claim is the epoch of every lease it gives: it only grows.
    seq, listed = move.next_seq(), to_json(ids)
    move.run("claim", seq=seq, session=session.id, now=move.now, mono=move.mono, ids=listed)
    [(text,)] = move.run("claimed", ids=listed)
    rows = _read(text)
    move.record(seq, Kind.processing, [(row[0], seq, row[3], {"worker": session.worker}) for row in rows])
    lane_of, now = move.lanes.by_number(move.connection), move.now
    return [
        Claimed(
            Lease(uid, seq), lane_of[lane], payload, attempt, most, crashes, generation, owner, key,
            maybe_duration(timeout), maybe_duration(deadline_at - now) if deadline_at is not None else None,
            timedelta(microseconds=now - queued_at), maybe_duration(start_within), version, trace,
        )
        for (uid, lane, payload, attempt, most, crashes, generation, owner, key, timeout, deadline_at, queued_at,
             start_within, version, trace) in rows
    ]  # fmt: skip


def _read(text: str) -> list[Any]:
    """The rows of `claimed`. One damaged payload must not hide the others: read loosely, it fails alone, at its task."""
    try:
        rows: list[Any] = from_json(text)
    except ValueError:
        rows = json.loads(text, strict=False)
    return rows


def _pick(move: Move, lanes: Sequence[int], limit: int) -> list[int]:
    """The first *limit* jobs over all these lines; of one key at most one, and none whose key is busy."""
    picked: list[int] = []
    busy: set[str] = set()
    offset, more = 0, list(lanes)
    while more and len(picked) < limit:
        heads = [
            from_json(move.run("head", lane=lane, limit=limit, offset=offset).fetchone()[0]) for lane in more
        ]
        wanted = {key for head in heads for _, _, _, key in head if key is not None}
        if wanted:
            busy |= busy_keys(move, wanted - busy)
        for _, _, number, key in heapq.merge(*heads):
            if len(picked) == limit:
                break
            if key is None or key not in busy:
                picked.append(number)
                if key is not None:
                    busy.add(key)
        # Only keys can leave a head unused: without any there is nothing to look for behind it.
        more = [lane for lane, head in zip(more, heads, strict=True) if wanted and len(head) == limit]
        offset += limit
    return picked


def busy_keys(move: Move, keys: Collection[str]) -> set[str]:
    """Those that a running job holds."""
    rows = move.connection.execute(
        "SELECT DISTINCT key FROM holdfast_job WHERE phase = 2 AND key IN (SELECT value FROM json_each(?))",
        (to_json(list(keys)),),
    )
    return {key for (key,) in rows}
