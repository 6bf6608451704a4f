"""A tour in the terminal: a service that fails, a worker that is killed, a dead letter that is redriven.

`make demo` runs it. Real parts: an HTTP service on loopback, worker processes of their own, a SQLite file. It ends by itself;
the exit code says whether every promise held.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
from rich.console import Console
from rich.table import Table

from holdfast import THIS_JOB, Fatal, Holdfast, Job, Retry, State

app = Holdfast(os.environ.get("DEMO_URL"), lease="2s", reclaim_every="300ms", poll="200ms", concurrency=5)
console = Console()

JOBS = 40


@app.task(retry=Retry(8, base="300ms", factor=1.5, jitter="20%"), timeout="5s")
async def convert(page: int, *, job: Job = THIS_JOB) -> str:
    """Ask the service for a page; it may be down, and it refuses page 13 until somebody mends it."""
    async with httpx2.AsyncClient(base_url=os.environ["DEMO_SERVICE"]) as client:
        answer = await client.get(f"/page/{page}")
    if answer.status_code == 422:
        raise Fatal("the service refuses this page", code="PAGE_REFUSED")
    answer.raise_for_status()
    return answer.text


class Service:
    """A service with two switches: it can be down, and it can refuse page 13."""

    def __init__(self) -> None:
        self.down, self.refuses = False, True
        self.calls = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        self.calls += 1
        page = request.split(b" ", 2)[1].rsplit(b"/", 1)[1].decode()
        await asyncio.sleep(0.15)
        status, body = "200 OK", f"<page>{page}</page>"
        if self.down:
            status, body = "503 Service Unavailable", "down"
        elif self.refuses and page == "13":
            status, body = "422 Unprocessable Content", "no"
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
        )
        await writer.drain()
        writer.close()


@asynccontextmanager
async def worker() -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", "worker", "examples.demo:app",
        env={**os.environ, "HOLDFAST_LOG_LEVEL": "error"},
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def until(happened: Callable[[], Awaitable[bool]], seconds: float = 40) -> bool:
    async with asyncio.timeout(seconds):
        while not await happened():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(0.1)
    return True


async def done(at_least: int) -> bool:
    return (await app.counts())[State.COMPLETE] >= at_least


async def tour(service: Service) -> list[tuple[str, bool, str]]:
    """The story; each line of the answer is a promise, whether it held, and what was seen."""
    told: list[tuple[str, bool, str]] = []
    console.print(f"[bold]1.[/] {JOBS} jobs are enqueued; each is on disk before its call returns.")
    handles = await convert.enqueue_many([(page,) for page in range(JOBS)])

    console.print("[bold]2.[/] A worker starts. After a few jobs it is killed with SIGKILL.")
    async with worker() as victim:
        await until(lambda: done(4))
        victim.send_signal(signal.SIGKILL)
    lost = (await app.counts())[State.PROCESSING]
    console.print(f"   {lost} jobs were in its hands.")

    console.print("[bold]3.[/] Another worker starts, and the service goes down for three seconds.")
    async with worker():
        await until(lambda: done(12))
        service.down = True
        await asyncio.sleep(3)
        service.down = False
        console.print("   The service is back; nobody clicks anything.")
        await until(lambda: done(JOBS - 1))
        [letter] = await app.dead_letters()
        console.print(f"   Page 13 was refused and is a dead letter: {letter.reason}: {letter.message}.")
        console.print("[bold]4.[/] The cause is mended and the dead letter is redriven.")
        service.refuses = False
        redriven = await app.redrive(letter.id, by="demo")
        await until(lambda: done(JOBS))

    rows = [await app.job(handle.id) for handle in handles]
    events = [await app.events(job_id=row.id) for row in rows]
    ends = [sum(event.kind == "complete" for event in history) for history in events]
    kinds = [event.kind for history in events for event in history]
    told.append(
        (
            "nothing is lost",
            all(row.state is State.COMPLETE for row in rows),
            f"{len(rows)} of {JOBS} complete",
        )
    )
    told.append(("exactly one recorded end each", ends == [1] * JOBS, f"{sum(ends)} ends"))
    told.append(("a killed worker's jobs go on", kinds.count("reclaimed") == lost, f"{lost} reclaimed"))
    told.append(("an outage is retried, not reported", "retry" in kinds, f"{kinds.count('retry')} retries"))
    told.append(("what cannot succeed waits for a person", redriven == 1, "1 dead letter, redriven"))
    told.append(
        ("the books balance", await (await app.engine()).store.violations() == [], f"{len(kinds)} events")
    )
    return told


async def main() -> int:
    service = Service()
    server = await asyncio.start_server(service.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    os.environ["DEMO_SERVICE"] = f"http://127.0.0.1:{port}"
    async with server, app:
        told = await tour(service)
    table = Table("promise", "held", "seen")
    for promise, held, seen in told:
        table.add_row(promise, "[green]yes[/]" if held else "[red]NO[/]", seen)
    console.print(table)
    return 0 if all(held for _, held, _ in told) else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DEMO_URL"] = app.url = f"sqlite:///{Path(folder) / 'demo.db'}"
        sys.exit(asyncio.run(main()))
