"""Floor and one candidate in the same seconds: calls alternate one by one, so disk noise meets both alike.

python pairs.py C C-uuid C/psycopg
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time

from bench import Ctx
from server import Server


async def alternate(floor: Ctx, other: Ctx, size: int, calls: int) -> dict[str, float]:
    fdb, odb = await floor.open(), await other.open()
    times: tuple[list[float], list[float]] = ([], [])
    cpu = [0.0, 0.0]
    pairs = ((floor, fdb), (other, odb))
    for i in range(calls + 10):
        for k in (0, 1) if i % 2 else (1, 0):
            ctx, db = pairs[k]
            t, c = time.perf_counter(), time.process_time()
            await ctx.layout.enqueue(db, 0, range(size))
            if i >= 10:
                times[k].append(time.perf_counter() - t)
                cpu[k] += time.process_time() - c
    await fdb.close()
    await odb.close()
    median = [statistics.median(x) for x in times]
    return {
        "floor_ms": median[0] * 1e3,
        "other_ms": median[1] * 1e3,
        "ratio_median": median[0] / median[1],
        "ratio_sum": sum(times[0]) / sum(times[1]),
        "client_us": cpu[1] / calls / size * 1e6,
        "floor_client_us": cpu[0] / calls / size * 1e6,
    }


async def main(server: Server, spec: str) -> None:
    for size, calls in ((1, 600), (100, 150), (1000, 40)):
        floor, other = Ctx(server, "floor"), Ctx(server, spec)
        db = await other.open()
        await db.script("CHECKPOINT")
        await other.layout.reset(db)
        fdb = await floor.open()
        await floor.layout.reset(fdb)
        result = await alternate(floor, other, size, calls)
        await db.close()
        await fdb.close()
        rounded = {k: round(v, 3) for k, v in result.items()}
        print(json.dumps({"pair": spec, "size": size, **rounded}), flush=True)


if __name__ == "__main__":
    with Server() as srv:
        for name in sys.argv[1:]:
            asyncio.run(main(srv, name))
