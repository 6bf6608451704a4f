"""Plans of claim and complete, with statistics from empty tables. Usage: explain.py A,B,C"""

from __future__ import annotations

import asyncio
import sys

import asyncpg
from drivers import AsyncpgDb
from layouts import LAYOUTS, Wide
from server import Server


async def explain(con: asyncpg.Connection, title: str, sql: str, *args: object) -> None:
    tx = con.transaction()
    await tx.start()
    rows = await con.fetch("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) " + sql, *args)
    await tx.rollback()
    print(f"--- {title}")
    for row in rows:
        print(row[0])


async def main(dsn: str, name: str) -> None:
    db = await AsyncpgDb.open(dsn)
    layout = LAYOUTS[name]()
    assert isinstance(layout, Wide)
    await layout.reset(db)
    await db.script("VACUUM ANALYZE")  # the worst moment: all tables empty
    con = db.con
    for mode in ("force_custom_plan", "force_generic_plan"):
        await db.script(f"SET plan_cache_mode = {mode}")
        for _ in range(10):
            await layout.enqueue(db, 0, range(1000))
        for _ in range(30):
            await layout.complete(db, await layout.claim(db, 100))
        await explain(con, f"{name} claim {mode}", layout.CLAIM, *layout.probe(db, 100))
        rows = await layout.claim(db, 100)
        ids, epochs = [r[0] for r in rows], [r[1] for r in rows]
        await explain(con, f"{name} complete {mode}", layout.COMPLETE, ids, epochs)
        await layout.complete(db, rows)
    await db.close()


if __name__ == "__main__":
    with Server() as server:
        for layout_name in sys.argv[1].split(","):
            asyncio.run(main(server.dsn, layout_name))
