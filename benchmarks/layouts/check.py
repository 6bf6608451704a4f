"""What the statements in sql/ promise: fence, repeats, events by pointer, reclaim, promote, refusals."""

from __future__ import annotations

import asyncio

from drivers import AsyncpgDb
from layouts import BatchedSplit, UuidSplit, load
from server import Server


async def check(dsn: str, layout: BatchedSplit) -> None:
    t = layout.id_type
    db, db2 = await AsyncpgDb.open(dsn), await AsyncpgDb.open(dsn)
    await layout.reset(db)
    await db.script(layout.settings)

    async def kinds(id_: object) -> list[tuple[int, int | None, int | None]]:
        rows = await db.fetch(load("job_events", t), id_)
        return [(r["kind"], r["epoch"], r["attempt"]) for r in rows]

    # a repeated enqueue inserts what is missing and says so
    ids = [layout.ids() for _ in range(4)]
    many = ([1] * 3, [5] * 3, [0] * 3, [b"1"] * 3)
    await db.run(load("enqueue", t), ids[:3], *many)
    new = await db.fetch(load("enqueue_again", t), ids[1:], *many)
    assert [r[0] for r in new] == ids[3:], new
    assert await db.fetch(load("enqueue_again", t), ids[1:], *many) == []
    assert (await db.fetch("SELECT count(*) FROM holdfast.event"))[0][0] == 2

    # two claimers get different jobs; an unknown session gets none
    a, b = await asyncio.gather(layout.claim(db, 2), layout.claim(db2, 2))
    assert sorted(r[0] for r in [*a, *b]) == sorted(ids)
    probe = list(layout.probe(db, 9))
    probe[0] = 999
    assert await db.fetch(layout.CLAIM, *probe) == []

    # fence: a wrong epoch and a crossed pair change nothing; a repeat changes nothing
    (x, y) = a
    assert await db.fetch(layout.COMPLETE, [x[0]], [10**9]) == []
    assert await db.fetch(layout.COMPLETE, [x[0]], [y[1]]) == []
    assert [r[0] for r in await db.fetch(layout.COMPLETE, [x[0]], [x[1]])] == [x[0]]
    before = (await db.fetch("SELECT count(*) FROM holdfast.event"))[0][0]
    assert await db.fetch(layout.COMPLETE, [x[0]], [x[1]]) == []
    assert (await db.fetch("SELECT count(*) FROM holdfast.event"))[0][0] == before
    assert (await db.fetch("SELECT epoch FROM holdfast.done WHERE job_id = $1", x[0]))[0][0] == x[1]
    assert await kinds(x[0]) == [(1, None, None), (2, x[1], 1), (3, x[1], 1)], await kinds(x[0])

    # retry at once and later
    got = await db.fetch(layout.RETRY, [y[0]], [y[1]], [0.0], ["E"])
    assert [r[0] for r in got] == [y[0]]
    (z, w) = b
    await db.fetch(layout.RETRY, [z[0]], [z[1]], [0.01], ["E"])
    layout.cursor.back(0)
    again = await layout.claim(db, 9)
    assert [(r[0], r[2]) for r in again] == [(y[0], 2)]
    assert again[0][1] > y[1]
    await db.fetch(layout.RESULT, [y[0]], [again[0][1]], [b"r"])
    expect = [(1, None, None), (2, y[1], 1), (4, y[1], 1), (2, again[0][1], 2), (3, again[0][1], 2)]
    assert await kinds(y[0]) == expect, await kinds(y[0])
    assert (await db.fetch("SELECT result FROM holdfast.done WHERE job_id = $1", y[0]))[0][0] == b"r"
    await asyncio.sleep(0.02)
    assert (await db.fetch(load("promote", t), 10))[0][0] == 1
    assert [r[0] for r in await layout.claim(db, 9)] == [z[0]]

    # the session dies: its leases go to deferred with a crash, a late completion is refused, it cannot claim
    await db.run("UPDATE holdfast.session SET expires_at = clock_timestamp() - interval '1 s'")
    assert tuple((await db.fetch(load("reclaim", t), 10, 0.0, 3))[0]) == (1, 2)
    assert await db.fetch(layout.COMPLETE, [w[0]], [w[1]]) == []
    assert await layout.claim(db, 9) == []
    rows = await db.fetch("SELECT id, attempt, failures, crashes FROM holdfast.deferred ORDER BY attempt")
    assert [tuple(r) for r in rows] == [(w[0], 1, 0, 1), (z[0], 2, 1, 1)], rows
    assert tuple((await db.fetch(load("reclaim", t), 10, 0.0, 3))[0]) == (0, 0)
    await layout.start(db)
    assert (await db.fetch(load("promote", t), 10))[0][0] == 2
    layout.cursor.next_full = 0
    rest = await layout.both(db, 9, [])
    assert len(rest) == 2
    # a lease whose session was swept away is found too
    await db.run("DELETE FROM holdfast.session")
    assert tuple((await db.fetch(load("reclaim", t), 10, 0.0, 3))[0]) == (0, 2)
    await layout.start(db)
    assert (await db.fetch(load("promote", t), 10))[0][0] == 2
    layout.cursor.next_full = 0
    rest = await layout.both(db, 9, [])
    assert [r[2] for r in rest].count(4) == 1
    layout.cursor.next_full = 0
    assert await layout.both(db, 9, rest) == []
    for table, want in (("job", 4), ("ready", 0), ("deferred", 0), ("lease", 0), ("done", 4), ("attempt", 6)):
        assert (await db.fetch(f"SELECT count(*) FROM holdfast.{table}"))[0][0] == want, table

    # the feed: everything, in order, once
    seen: list[int] = []
    seq, xid = 0, "0"
    while page := await db.fetch(load("event_feed", t), seq, 3, xid):
        seen += [r["seq"] for r in page]
        seq, xid = page[-1]["seq"], page[-1]["xid"]
    assert len(seen) == len(set(seen)) == (await db.fetch("SELECT count(*) FROM holdfast.event"))[0][0]
    await db.close()
    await db2.close()
    print("ok", t)


if __name__ == "__main__":
    with Server() as server:
        asyncio.run(check(server.dsn, BatchedSplit()))
        asyncio.run(check(server.dsn, UuidSplit()))
