"""Run scenarios on layouts in interleaved rounds; one JSON line per cell.

python bench.py --rounds 3 --out results.jsonl
python bench.py --cells drain100,retry --layouts floor,C,C/psycopg --rounds 1
python bench.py --cells held --layouts floor,B,C
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from drivers import DRIVERS, Db
from layouts import LAYOUTS, Layout
from server import Server

FAIL, NOOP = 1, 0
Result = dict[str, Any]


class Ctx:
    def __init__(self, server: Server, spec: str) -> None:
        name, _, driver = spec.partition("/")
        cursor = not name.endswith("-nocur")
        self.layout: Layout = LAYOUTS[name.removesuffix("-nocur")](cursor)
        self.server = server
        self.driver = DRIVERS[driver or "asyncpg"]
        self.kept: list[Db] = []
        self.bare = False  # True: without the layout's connection settings

    async def open(self) -> Db:
        if self.kept:
            return self.kept.pop()
        db: Db = await self.driver.open(self.server.dsn)
        if self.layout.settings and not self.bare:
            await db.script(self.layout.settings)
        return db


async def measured(ctx: Ctx, n: int, body: Callable[[], Awaitable[None]]) -> Result:
    admin = await DRIVERS["asyncpg"].open(ctx.server.dsn)
    lsn = (await admin.fetch("select pg_current_wal_insert_lsn()::text"))[0][0]
    server, client, wall = ctx.server.cpu_seconds(), time.process_time(), time.perf_counter()
    await body()
    wall, client = time.perf_counter() - wall, time.process_time() - client
    server = ctx.server.cpu_seconds() - server
    wal = (await admin.fetch("select (pg_current_wal_insert_lsn() - $1::text::pg_lsn)::bigint", lsn))[0][0]
    seq = await admin.fetch(
        "select schemaname||'.'||relname, seq_scan, seq_tup_read from pg_stat_user_tables "
        "where seq_scan > 0 and schemaname in ('floor','holdfast')"
    )
    await admin.close()
    return {
        "n": n,
        "rate": n / wall,
        "client_us": client / n * 1e6,
        "server_us": server / n * 1e6,
        "wal": wal / n,
        "seq": {r[0]: [r[1], r[2]] for r in seq},
    }


async def drain(ctx: Ctx, n: int, batch: int, pipe: int = 2) -> None:
    """`pipe` loops, each: claim, run each body as a task, settle. The loop of the floor."""
    layout, done = ctx.layout, 0

    async def run(row: Any, ok: list[Any], again: list[Any]) -> None:
        try:
            layout.decode(row)
            if int(row[4]) == FAIL and row[2] == 1:
                raise ValueError("once")
            ok.append(row)
        except ValueError:
            again.append(row)

    async def loop() -> None:
        nonlocal done
        db = await ctx.open()
        ok: list[Any] = []
        while done < n:
            if layout.combined and ok:
                rows = await layout.both(db, batch, ok)  # type: ignore[attr-defined]
                done += len(ok)
            else:
                rows = await layout.claim(db, batch)
            ok, again = [], []
            if not rows:
                await asyncio.sleep(0.002)
                continue
            await asyncio.gather(*[asyncio.create_task(run(r, ok, again)) for r in rows])
            if ok and not layout.combined:
                await layout.complete(db, ok)
                done += len(ok)
            if again:
                await layout.retry(db, again)
        await db.close()

    await asyncio.gather(*[loop() for _ in range(pipe)])


async def fill(ctx: Ctx, db: Db, n: int, kind: int = NOOP, step: int = 1000) -> None:
    for i in range(0, n, step):
        await ctx.layout.enqueue(db, kind, range(i, min(n, i + step)))


async def single(ctx: Ctx, db: Db) -> Result:
    async def body() -> None:
        for i in range(400):
            await ctx.layout.enqueue(db, NOOP, [i])

    return await measured(ctx, 400, body)


async def conc100(ctx: Ctx, db: Db) -> Result:
    """100 callers whose enqueues travel in one statement; each is answered after its commit."""
    waiting: list[tuple[int, asyncio.Future[None]]] = []
    wake = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def writer() -> None:
        while True:
            await wake.wait()
            wake.clear()
            while waiting:
                take = waiting[:100]
                del waiting[:100]
                await ctx.layout.enqueue(db, NOOP, [a for a, _ in take])
                for _, f in take:
                    f.set_result(None)

    async def caller() -> None:
        for i in range(60):
            f = loop.create_future()
            waiting.append((i, f))
            wake.set()
            await f

    async def body() -> None:
        w = asyncio.create_task(writer())
        await asyncio.gather(*[caller() for _ in range(100)])
        w.cancel()

    return await measured(ctx, 6000, body)


async def bulk(ctx: Ctx, db: Db) -> Result:
    return await measured(ctx, 20000, lambda: fill(ctx, db, 20000))


def draining(
    n: int, batch: int, kind: int = NOOP, future: int = 0, pipe: int = 2
) -> Callable[[Ctx, Db], Awaitable[Result]]:
    async def cell(ctx: Ctx, db: Db) -> Result:
        if future:
            await ctx.layout.future(db, future)
        await fill(ctx, db, n, kind, step=100 if batch == 100 else 1000)
        result = await measured(ctx, n, lambda: drain(ctx, n, batch, pipe))
        result["left"] = await ctx.layout.left(db)
        return result

    return cell


async def total(ctx: Ctx, db: Db) -> Result:
    """Enqueue by 100 and drain by 100 in one window: WAL and CPU of the whole life of a job."""

    async def body() -> None:
        await fill(ctx, db, 10000, step=100)
        await drain(ctx, 10000, 100)

    return await measured(ctx, 10000, body)


async def bulk2(ctx: Ctx, db: Db) -> Result:
    """The same bulk over two connections."""
    other = await ctx.open()

    async def body() -> None:
        await asyncio.gather(fill(ctx, db, 10000), fill(ctx, other, 10000))

    result = await measured(ctx, 20000, body)
    await other.close()
    return result


async def bulkcopy(ctx: Ctx, db: Db) -> Result:
    """Bulk by COPY into job and ready, 5000 rows per transaction (layout C on asyncpg only)."""
    con, layout = db.con, ctx.layout  # type: ignore[attr-defined]

    async def body() -> None:
        for i in range(0, 20000, 5000):
            ids = [layout.ids() for _ in range(5000)]
            async with con.transaction():
                seq, at = await con.fetchrow("SELECT nextval('holdfast.event_seq'), clock_timestamp()")
                ord_ = int(at.timestamp() * 1e6)
                jobs = [(k, at, seq, 1, NOOP, 5, str(i + n).encode()) for n, k in enumerate(ids)]
                await con.copy_records_to_table("job", schema_name="holdfast", records=jobs)
                ready = [(ord_, k, 1, 0, 5, 0, 0) for k in ids]
                await con.copy_records_to_table("ready", schema_name="holdfast", records=ready)
                sql = "INSERT INTO holdfast.event (seq, at, kind, job_ids) VALUES ($1, $2, 1, $3)"
                await con.execute(sql, seq, at, ids)

    return await measured(ctx, 20000, body)


def trap(setting: str) -> Callable[[Ctx, Db], Awaitable[Result]]:
    """Plans cached while every table is empty and analysed, then a drain beside a held snapshot with them."""

    async def cell(ctx: Ctx, db: Db) -> Result:
        await db.script("VACUUM ANALYZE")
        ctx.bare = True
        conns = [await ctx.open() for _ in range(2)]
        for con in conns:
            if setting:
                await con.script(setting)
            for i in range(20):
                await ctx.layout.enqueue(db, NOOP, [i])
                await ctx.layout.complete(con, await ctx.layout.claim(con, 100))
        snap = await DRIVERS["asyncpg"].open(ctx.server.dsn)
        await snap.script("begin isolation level repeatable read")
        await snap.fetch("select count(*) from pg_class")
        await fill(ctx, db, 20000)
        ctx.kept = conns
        result = await measured(ctx, 20000, lambda: drain(ctx, 20000, 100))
        await snap.close()
        return result

    return cell


async def held(ctx: Ctx, db: Db) -> Result:
    """Full cycle with a producer: 10 s free, then 60 s beside a REPEATABLE READ snapshot."""
    layout, window, windows = ctx.layout, 10.0, 7
    counts = [0] * windows
    start = time.monotonic()
    end = start + window * windows
    backlog = 0

    async def producer() -> None:
        nonlocal backlog
        pdb = await ctx.open()
        while time.monotonic() < end:
            if backlog > 4000:
                await asyncio.sleep(0.005)
                continue
            await layout.enqueue(pdb, NOOP, range(500))
            backlog += 500
        await pdb.close()

    async def one(row: Any) -> None:
        layout.decode(row)

    async def worker() -> None:
        nonlocal backlog
        wdb = await ctx.open()
        while time.monotonic() < end:
            rows = await layout.claim(wdb, 100)
            if not rows:
                await asyncio.sleep(0.002)
                continue
            await asyncio.gather(*[asyncio.create_task(one(r)) for r in rows])
            await layout.complete(wdb, rows)
            backlog -= len(rows)
            slot = int((time.monotonic() - start) / window)
            if slot < windows:
                counts[slot] += len(rows)
        await wdb.close()

    async def snapshot() -> None:
        await asyncio.sleep(window)
        sdb = await DRIVERS["asyncpg"].open(ctx.server.dsn)
        await sdb.script("begin isolation level repeatable read")
        await sdb.fetch("select count(*) from pg_class")
        await asyncio.sleep(end - time.monotonic())
        await sdb.close()

    async def body() -> None:
        await asyncio.gather(producer(), worker(), worker(), snapshot())

    result = await measured(ctx, 1, body)
    rates = [c / window for c in counts]
    return {"windows": rates, "rate": rates[-1], "kept": rates[-1] / rates[0], "seq": result["seq"]}


CELLS: dict[str, Callable[[Ctx, Db], Awaitable[Result]]] = {
    "single": single,
    "conc100": conc100,
    "bulk": bulk,
    "drain100": draining(20000, 100),
    "pipe1": draining(15000, 100, pipe=1),
    "drain500": draining(40000, 500),
    "retry": draining(10000, 100, FAIL),
    "deep": draining(8000, 100, NOOP, 300_000),
    "total": total,
    "bulk2": bulk2,
    "bulkcopy": bulkcopy,
    "trap": trap(""),
    "trap-noseq": trap("SET enable_seqscan = off"),
    "trap-custom": trap("SET plan_cache_mode = force_custom_plan"),
    "held": held,
}


async def run_cell(server: Server, cell: str, spec: str) -> Result:
    ctx = Ctx(server, spec)
    db = await ctx.open()
    await db.script("DROP SCHEMA IF EXISTS floor CASCADE")
    await db.script("DROP SCHEMA IF EXISTS holdfast CASCADE")
    await db.script("CHECKPOINT")
    await ctx.layout.reset(db)
    try:
        return await CELLS[cell](ctx, db)
    finally:
        await db.close()


def main() -> None:
    ap = argparse.ArgumentParser()
    ap.add_argument("--cells", default="single,conc100,bulk,drain100,drain500,retry,total")
    ap.add_argument("--layouts", default="floor,A,B,C,C-one,C-again,C-uuid,C/psycopg")
    ap.add_argument("--rounds", type=int, default=1)
    ap.add_argument("--out", default="")
    ap.add_argument("--uvloop", action="store_true")
    opt = ap.parse_args()
    if opt.uvloop:
        import uvloop

        uvloop.install()
    out = open(opt.out, "a") if opt.out else sys.stdout  # noqa: SIM115
    with Server() as server:
        for rnd in range(opt.rounds):
            for cell in opt.cells.split(","):
                specs = opt.layouts.split(",")
                for spec in specs if rnd % 2 == 0 else reversed(specs):
                    res = asyncio.run(run_cell(server, cell, spec))
                    line = {"cell": cell, "layout": spec, "round": rnd, "load": os.getloadavg()[0], **res}
                    print(json.dumps(line), file=out, flush=True)
                    short = {k: round(v, 1) for k, v in res.items() if isinstance(v, float)}
                    print(cell, spec, short, res.get("windows", ""), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
