"""The layouts under test: the floor, A (wide), B (split), C (split, batched events), C with uuid keys."""

from __future__ import annotations

import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from asyncpg.pgproto.pgproto import UUID
from drivers import Db

SQL = Path(__file__).parent / "sql"
CANDIDATES = Path(__file__).parent / "candidates"
BIG = 2**40  # ids start above 32 bits, as an old installation's would
NIL = UUID("00000000-0000-0000-0000-000000000000")
Row = tuple[Any, int, int, Any]  # id, epoch, attempt, argument


def uuid7s() -> Iterator[UUID]:
    """Cheap version 7: one random tail for a block of up to 1024, and a counter in rand_a."""
    while True:
        head = (time.time_ns() // 1_000_000).to_bytes(6, "big")
        tail = bytes([0x80 | (os.urandom(1)[0] & 0x3F)]) + os.urandom(7)
        for n in range(0x7000, 0x7000 + 1024):
            yield UUID(head + n.to_bytes(2, "big") + tail)


class Cursor:
    """A hint where to begin in (ord, id). Correctness never depends on it.

    Goes back to the start on an empty answer and every second; when the scan from the start is slow (dead
    rows that a held snapshot keeps), the interval grows so that it costs at most about 1/20 of the time.
    """

    def __init__(self, zero: Any, enabled: bool = True) -> None:
        self.zero, self.enabled = zero, enabled
        self.ord, self.id = -1, zero
        self.next_full = 0.0
        self.full = True

    def begin(self) -> tuple[int, Any]:
        self.t = time.monotonic()
        self.full = not self.enabled or self.t >= self.next_full
        return (-1, self.zero) if self.full else (self.ord, self.id)

    def end(self, rows: Sequence[Any], begun: float, full: bool) -> None:
        now = time.monotonic()
        if full:
            self.next_full = now + max(1.0, 20 * (now - begun))
        if rows:
            low = min((r[3], r[0]) for r in rows)
            self.ord, self.id = low[0] - 1, self.zero
        elif not full:
            self.next_full = min(self.next_full, now + 0.05)

    def back(self, ord_: int) -> None:
        if ord_ <= self.ord:
            self.ord, self.id = ord_ - 1, self.zero


class Layout:
    name = ""
    schema = ""
    tables: Sequence[str] = ()
    combined = False
    # Plans cached while the tables were empty must not be sequential scans; see the trap cells of bench.py.
    settings = "SET enable_seqscan = off; SET jit = off"
    zero: Any = 0

    def __init__(self, cursor: bool = True) -> None:
        self.ids: Callable[[], Any] = itertools.count(BIG).__next__
        self.cursor = Cursor(self.zero, cursor)
        self.session = 0

    async def reset(self, db: Db) -> None:
        await db.script(self.schema)
        await self.start(db)

    async def start(self, db: Db) -> None:
        sql = """INSERT INTO holdfast.session(worker, expires_at) VALUES ('w', now() + interval '1 day')
            RETURNING id"""
        self.session = (await db.fetch(sql))[0][0]

    def keys(self, db: Db, ids: Sequence[Any]) -> Any:
        return db.ints(ids)

    async def enqueue(self, db: Db, kind: int, args: Sequence[int]) -> None:
        raise NotImplementedError

    async def future(self, db: Db, n: int) -> None:
        raise NotImplementedError

    async def claim(self, db: Db, n: int) -> Sequence[Any]:
        raise NotImplementedError

    async def complete(self, db: Db, rows: Sequence[Any]) -> None:
        raise NotImplementedError

    async def retry(self, db: Db, rows: Sequence[Any]) -> None:
        raise NotImplementedError

    async def left(self, db: Db) -> int:
        raise NotImplementedError

    # what the handler's task needs
    def decode(self, row: Any) -> Any:
        return msgspec.json.decode(row[5])


class Floor(Layout):
    """The shape of the hand-written floor: one table, one partial index, no events, no attempts, no fence."""

    name = "floor"
    settings = ""
    schema = """
drop schema if exists floor cascade; create schema floor;
create table floor.job(id bigint generated always as identity primary key, kind text not null,
  status smallint not null default 0, attempt int not null default 0, due timestamptz not null default now(),
  lease timestamptz, payload jsonb not null) with (fillfactor=70, autovacuum_vacuum_scale_factor=0.05);
create index job_ready on floor.job(due, id) where status=0;
"""
    tables = ("floor.job",)
    CLAIM = """
with c as materialized (select id from floor.job where status=0 and due<=now() order by due, id limit $1
  for update skip locked)
update floor.job set status=1, attempt=attempt+1, lease=now()+interval '30 s' from c where job.id=c.id
returning job.id, 0, job.attempt, 0, job.kind, job.payload::text"""

    async def start(self, db: Db) -> None:
        return

    async def enqueue(self, db: Db, kind: int, args: Sequence[int]) -> None:
        if len(args) == 1:
            await db.run(
                "with i as (insert into floor.job(kind,payload) values($1,$2) returning id) "
                "select pg_notify('q','') from i",
                str(kind),
                json.dumps(args[0]),
            )
            return
        sql = "insert into floor.job(kind,payload) select $1,unnest($2::text[])::jsonb"
        await db.run(sql, str(kind), [str(a) for a in args])

    async def future(self, db: Db, n: int) -> None:
        await db.run(
            "insert into floor.job(kind,payload,due) select '0','0',now()+interval '1 day' "
            "from generate_series(1,$1::int)",
            n,
        )
        await db.script("analyze floor.job")

    async def claim(self, db: Db, n: int) -> Sequence[Any]:
        return await db.fetch(self.CLAIM, n)

    async def complete(self, db: Db, rows: Sequence[Any]) -> None:
        sql = "update floor.job set status=2, lease=null where id=any($1::bigint[])"
        await db.run(sql, [r[0] for r in rows])

    async def retry(self, db: Db, rows: Sequence[Any]) -> None:
        sql = "update floor.job set status=0, due=now(), lease=null where id=any($1::bigint[])"
        await db.run(sql, [r[0] for r in rows])

    async def left(self, db: Db) -> int:
        sql = "select count(*) from floor.job where status in (0,1) and due<now()+interval '1 hour'"
        return int((await db.fetch(sql))[0][0])

    def decode(self, row: Any) -> Any:
        return json.loads(row[5])


def load(name: str, id_type: str = "bigint", folder: Path = SQL) -> str:
    """A statement without its comments, with the key type put in."""
    text = re.sub(r"--[^\n]*", "", (folder / f"{name}.sql").read_text())
    return text.replace("/*id*/bigint", id_type)


class Wide(Layout):
    name = "A"
    prefix = "a_"
    tables = ("holdfast.job", "holdfast.event", "holdfast.attempt")
    LEFT = "SELECT count(*) FROM holdfast.job WHERE state IN (0, 2)"
    FUTURE = """INSERT INTO holdfast.job (id, ord, created_at, run_at, lane, kind, prio, state, payload)
        SELECT i, i, now(), now() + interval '1 day', 1, 0, 5, 1, '0' FROM generate_series(1, $1::int) i"""

    def __init__(self, cursor: bool = True) -> None:
        super().__init__(cursor)
        self.schema, self.ENQUEUE, self.CLAIM, self.COMPLETE, self.RETRY = (
            load(self.prefix + name, folder=CANDIDATES)
            for name in ("schema", "enqueue", "claim", "complete", "retry")
        )

    async def enqueue(self, db: Db, kind: int, args: Sequence[int]) -> None:
        ids = [self.ids() for _ in args]
        payloads = [msgspec.json.encode(a) for a in args]
        await db.run(self.ENQUEUE, self.keys(db, ids), 1, 5, kind, db.blobs(payloads))

    async def future(self, db: Db, n: int) -> None:
        await db.run(self.FUTURE, n)
        await db.script("analyze")

    def probe(self, db: Db, n: int) -> tuple[Any, ...]:
        c_ord, c_id = self.cursor.begin()
        return (self.session, db.ints([1]), db.ints([5]), db.ints([c_ord]), self.keys(db, [c_id]), n, 30.0)

    async def claim(self, db: Db, n: int) -> Sequence[Any]:
        args = self.probe(db, n)
        begun, full = self.cursor.t, self.cursor.full
        rows = await db.fetch(self.CLAIM, *args)
        self.cursor.end(rows, begun, full)
        return rows

    async def complete(self, db: Db, rows: Sequence[Any]) -> None:
        ids, epochs = self.keys(db, [r[0] for r in rows]), db.ints([r[1] for r in rows])
        got = await db.fetch(self.COMPLETE, ids, epochs)
        assert len(got) == len(rows)

    async def retry(self, db: Db, rows: Sequence[Any]) -> None:
        n = len(rows)
        ids, epochs = self.keys(db, [r[0] for r in rows]), db.ints([r[1] for r in rows])
        got = await db.fetch(self.RETRY, ids, epochs, [0.0] * n, db.texts(["ValueError: once"] * n))
        assert len(got) == n
        self.cursor.back(min(r[3] for r in rows))

    async def left(self, db: Db) -> int:
        return int((await db.fetch(self.LEFT))[0][0])


class BatchedSplit(Wide):
    """C: the statements of sql/."""

    name = "C"
    tables = tuple(f"holdfast.{t}" for t in ("job", "ready", "deferred", "lease", "done", "attempt", "event"))
    id_type = "bigint"
    MANY = ONE = ""
    LEFT = "SELECT (SELECT count(*) FROM holdfast.ready) + (SELECT count(*) FROM holdfast.lease)"

    def __init__(self, cursor: bool = True) -> None:
        super().__init__(cursor)
        self.schema = load("schema", self.id_type)
        self.ENQUEUE = load("enqueue_bulk", self.id_type)
        self.MANY = load("enqueue", self.id_type)
        self.ONE = load("enqueue_one", self.id_type)
        self.AGAIN = load("enqueue_again", self.id_type)
        self.CLAIM = load("claim", self.id_type)
        self.COMPLETE = load("complete", self.id_type)
        self.RESULT = load("complete_result", self.id_type)
        self.RETRY = load("retry", self.id_type)
        self.BOTH = load("complete_claim", self.id_type)
        key = "i" if self.id_type == "bigint" else "gen_random_uuid()"
        self.FUTURE = f"""WITH x AS MATERIALIZED (SELECT i, {key} AS id FROM generate_series(1, $1::int) i),
            j AS (INSERT INTO holdfast.job SELECT id, now(), 0, 1, 0, 5, '0' FROM x)
            INSERT INTO holdfast.deferred SELECT now() + interval '1 day', id, i, 1, 0, 5, 0, 0, 0 FROM x"""

    async def enqueue(self, db: Db, kind: int, args: Sequence[int]) -> None:
        n = len(args)
        payloads = [msgspec.json.encode(a) for a in args]
        if n == 1 and self.ONE:
            id_ = self.ids()
            await db.run(self.ONE, id_, 1, 5, kind, payloads[0])
            return
        ids = self.keys(db, [self.ids() for _ in args])
        if self.MANY and n <= 100:  # as if they came from different callers
            many = db.ints([1] * n), db.ints([5] * n), db.ints([kind] * n)
            await db.run(self.MANY, ids, *many, db.blobs(payloads))
        else:
            await db.run(self.ENQUEUE, ids, 1, 5, kind, db.blobs(payloads))

    async def both(self, db: Db, n: int, rows: Sequence[Any]) -> Sequence[Any]:
        """Complete and claim in one statement."""
        args = self.probe(db, n)
        begun, full = self.cursor.t, self.cursor.full
        ids, epochs = self.keys(db, [r[0] for r in rows]), db.ints([r[1] for r in rows])
        rows = await db.fetch(self.BOTH, *args, ids, epochs)
        self.cursor.end(rows, begun, full)
        return rows


class Combined(BatchedSplit):
    name = "C-one"
    combined = True


class ConflictSplit(BatchedSplit):
    """C with ON CONFLICT on each enqueue, and a result for each completion."""

    name = "C-again"

    def __init__(self, cursor: bool = True) -> None:
        super().__init__(cursor)
        self.MANY = self.AGAIN
        self.ONE = ""

    async def enqueue(self, db: Db, kind: int, args: Sequence[int]) -> None:
        for i in range(0, len(args), 100):
            await super().enqueue(db, kind, args[i : i + 100])

    async def complete(self, db: Db, rows: Sequence[Any]) -> None:
        ids, epochs = self.keys(db, [r[0] for r in rows]), db.ints([r[1] for r in rows])
        got = await db.fetch(self.RESULT, ids, epochs, [b"12345"] * len(rows))
        assert len(got) == len(rows)


class UuidSplit(BatchedSplit):
    name = "C-uuid"
    id_type = "uuid"
    zero = NIL

    def __init__(self, cursor: bool = True) -> None:
        super().__init__(cursor)
        self.ids = uuid7s().__next__

    def keys(self, db: Db, ids: Sequence[Any]) -> Any:
        return ids


class Split(BatchedSplit):
    """B: as C, but one row per event with an index on job_id, and an attempt row for every settle."""

    name = "B"
    prefix = "b_"

    def __init__(self, cursor: bool = True) -> None:
        super().__init__(cursor)
        Wide.__init__(self, cursor)
        self.MANY = self.ONE = ""
        self.FUTURE = self.FUTURE.replace("now(), 0, 1", "now(), 1")


LAYOUTS: dict[str, type[Layout]] = {
    c.name: c for c in (Floor, Wide, Split, BatchedSplit, Combined, ConflictSplit, UuidSplit)
}
