"""What a job costs through HTTP: `python -m benchmarks.http [--seconds 3] [--postgres]`.

Ours is `POST /api/v1/jobs` with a key. Beside it, in the same run, stands a bare FastAPI handler that does one committed
insert in a table of the same kind of database. Servers run in processes of their own; the client is a loop over plain
sockets, so that it costs little. Read the ratios: on a shared machine rates by themselves mean little.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel

TARGET_OF_BARE, TARGET_OF_ONE = 0.5, 5.0
CLIENTS = (1, 100)
ROUNDS = 3
BODY = json.dumps({"task": "note", "args": {"text": "hello, world"}}).encode()


class Note(BaseModel):
    task: str
    args: dict[str, Any]


# -- servers, each in a process of its own ------------------------------------------------------------------------------
def _run(site: Any, port: int) -> None:
    import uvicorn

    uvicorn.run(site, host="127.0.0.1", port=port, log_level="warning", access_log=False)


def serve_holdfast(url: str, port: int, ready: Any) -> None:
    from holdfast import Holdfast
    from holdfast.http import api

    app = Holdfast(url)

    @app.task
    async def note(text: str) -> None: ...

    async def make_key() -> str:
        await app.migrate()
        async with app:
            return (await app.create_key("operator"))[1]

    ready.put(asyncio.run(make_key()))
    _run(api(app, rate=None), port)


def serve_bare(url: str, port: int, ready: Any) -> None:
    from fastapi import FastAPI

    insert = _bare_insert(url)
    site = FastAPI()

    @site.post("/api/v1/jobs", status_code=201)
    async def enqueue(body: Note) -> dict[str, Any]:
        return {"id": await insert(body.task, json.dumps(body.args)), "state": "queued"}

    ready.put("")
    _run(site, port)


def _bare_insert(url: str) -> Callable[[str, str], Any]:
    if url.startswith("sqlite"):
        db = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        db.execute("PRAGMA journal_mode = wal")
        db.execute("PRAGMA synchronous = full")
        db.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, task TEXT, payload TEXT)")

        async def insert(task: str, payload: str) -> Any:
            return db.execute("INSERT INTO bare (task, payload) VALUES (?, ?)", (task, payload)).lastrowid

        return insert

    import asyncpg

    pool: Any = None
    opening: Any = None

    async def insert_there(task: str, payload: str) -> Any:
        nonlocal pool, opening
        if pool is None:
            opening = opening or asyncio.ensure_future(asyncpg.create_pool(url, min_size=10, max_size=10))
            pool = await asyncio.shield(opening)
        return await pool.fetchval(
            "INSERT INTO bare (task, payload) VALUES ($1, $2) RETURNING id", task, payload
        )

    async def create() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute("CREATE TABLE bare (id bigserial PRIMARY KEY, task text, payload text)")
        await connection.close()

    asyncio.run(create())
    return insert_there


@contextmanager
def server(run: Callable[[str, int, Any], None], url: str) -> Iterator[tuple[int, str]]:
    """Its port, and the key it wants."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    fork = multiprocessing.get_context("spawn")
    ready = fork.Queue()
    process = fork.Process(target=run, args=(url, port, ready), daemon=True)
    process.start()
    try:
        key = ready.get(timeout=60)
        _wait(port)
        yield port, key
    finally:
        process.terminate()
        process.join()


def _wait(port: int) -> None:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server did not start")


# -- the client -----------------------------------------------------------------------------------------------------------
async def load(port: int, key: str, clients: int, seconds: float) -> tuple[float, float]:
    """Requests a second, and the 95th percentile of their milliseconds."""
    lines = ["POST /api/v1/jobs HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    lines += [f"Authorization: Bearer {key}"] * bool(key) + [f"Content-Length: {len(BODY)}", "", ""]
    request = "\r\n".join(lines).encode() + BODY
    spent: list[float] = []
    end = time.perf_counter() + seconds

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (began := time.perf_counter()) < end:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 201 " not in head[:20]:
                raise SystemExit(head.decode())
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            spent.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    spent.sort()
    return len(spent) / seconds, spent[int(len(spent) * 0.95)] * 1000


def measure(new_url: Callable[[], str], seconds: float) -> dict[tuple[str, int], list[float]]:
    """The rates of both, by turns, so that what else the machine does falls on both."""
    found: dict[tuple[str, int], list[float]] = {}
    with server(serve_holdfast, new_url()) as ours, server(serve_bare, new_url()) as bare:
        for port, key in (ours, bare):
            asyncio.run(load(port, key, 10, 0.5))  # warm
        for _ in range(ROUNDS):
            for clients in CLIENTS:
                for name, (port, key) in (("ours", ours), ("bare", bare)):
                    rate, late = asyncio.run(load(port, key, clients, seconds))
                    found.setdefault((name, clients), []).append(rate)
                    print(f"  {name} {clients:>3} clients  {rate:>8,.0f}/s  p95 {late:>6.1f} ms", flush=True)
    return found


def report(store: str, found: dict[tuple[str, int], list[float]]) -> bool:
    rate = {which: statistics.median(rates) for which, rates in found.items()}
    one, many = CLIENTS
    ratios = {
        f"ours / bare, {one} client": (rate["ours", one] / rate["bare", one], TARGET_OF_BARE),
        f"ours / bare, {many} clients": (rate["ours", many] / rate["bare", many], TARGET_OF_BARE),
        f"ours, {many} clients / {one}": (rate["ours", many] / rate["ours", one], TARGET_OF_ONE),
    }
    for what, (ratio, target) in ratios.items():
        print(
            f"{store}: {what:<26} {ratio:>5.2f}  (target {target:g}) {'ok' if ratio >= target else 'MISSED'}"
        )
    return all(ratio >= target for ratio, target in ratios.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3, help="of each measurement")
    parser.add_argument("--postgres", action="store_true", help="on a private PostgreSQL too, with fsync on")
    chosen = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        paths = iter(Path(folder, f"{number}.db") for number in range(10))
        well = report("sqlite", measure(lambda: f"sqlite:///{next(paths)}", chosen.seconds))
    if chosen.postgres:
        from tests.services.postgres import Postgres

        with Postgres(durable=True) as running:
            names = iter(f"bench_{number}" for number in range(10))
            found = measure(lambda: running.create_database(next(names)), chosen.seconds)
            well = report("postgres", found) and well
    return 0 if well else 1


if __name__ == "__main__":
    raise SystemExit(main())
