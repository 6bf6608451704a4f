"""A real engine on SQLite with its dashboard on loopback: at the root, mounted under /a/b, and behind a proxy that strips a prefix."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast import Fatal, Holdfast, JobRow, Retry
from holdfast.server import dashboard
from holdfast.server.run import Server, address_of, listen

T = TypeVar("T")
#: Where the dashboard is reached.
PLACES = ("/", "/a/b/", "/stripped/")


@dataclass
class World:
    """The engine in a thread of its own, and short words for what tests ask of it."""

    app: Holdfast
    loop: asyncio.AbstractEventLoop
    url: str
    site: Any
    fails: set[str] = field(default_factory=set)  #: the names that `convert` fails for
    gate: asyncio.Event = field(default_factory=asyncio.Event)  #: `wait` runs until this is set

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def key(self, role: str, owner: str | None = None) -> tuple[str, str]:
        """Return the id and the secret of a new key."""
        key, secret = self.do(self.app.keys.create(role, owner=owner, name=f"{role} key"))
        return key.id, secret

    def enqueue(self, task: str, options: dict[str, Any] | None = None, **args: Any) -> str:
        chosen = self.app.tasks[task].options(**(options or {}))
        return str(self.do(chosen.enqueue(**args)).id)

    def job(self, job_id: str) -> JobRow:
        return self.do(self.app.jobs.get(job_id))

    def until(self, job_id: str, *states: str) -> JobRow:
        """Wait until the job is in one of these states."""

        async def look() -> JobRow:
            async with asyncio.timeout(20):
                row = await self.app.jobs.get(job_id)
                while row.state not in states:
                    await asyncio.sleep(0.02)
                    row = await self.app.jobs.get(job_id)
                return row

        return self.do(look())

    def open_gate(self) -> None:
        self.loop.call_soon_threadsafe(self.gate.set)


def make_app(url: str, world: Callable[[], World]) -> Holdfast:
    app = Holdfast(url, poll="20ms", environment="test")

    @app.task(queue="press", retry=Retry(3, base="1ms", jitter="none"), http=True)
    async def convert(pdf: str, pages: int = 1, password: str | None = None) -> dict[str, Any]:
        if pdf in world().fails:
            raise ConnectionError(f"the press cannot reach {pdf}")
        return {"pdf": pdf, "pages": pages}

    @app.task(queue="mail", retry=Retry(5, base="1h", jitter="none"), http=True)
    async def send(to: str) -> None:
        raise ConnectionError(f"no answer from {to}")

    @app.task(queue="press", depends_on="gateway")
    async def refuse(why: str) -> None:
        raise Fatal(why, code="REFUSED")

    @app.task(queue="slow", http=True)
    async def wait(name: str = "") -> str:
        await world().gate.wait()
        return name

    @app.task(queue="later")
    async def later(name: str, data: Any = None) -> Any:
        return data

    return app


def strip(site: ASGIApp, prefix: str) -> ASGIApp:
    """Stand for a proxy that passes on what follows the prefix: *site* never sees it."""

    async def passed_on(scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path", b"").removeprefix(prefix.encode())
        inner = {**scope, "path": scope["path"].removeprefix(prefix), "raw_path": raw, "root_path": ""}
        await site(inner, receive, send)

    return passed_on


@contextmanager
def running(folder: Path, *, maintenance: bool = True) -> Iterator[World]:
    ready: list[World] = []
    up, stop = threading.Event(), asyncio.Event()

    async def run() -> None:
        app = make_app(f"sqlite:///{folder}/dashboard.db", lambda: ready[0])
        site = dashboard(app, rate=None)
        root = Starlette(
            routes=[
                Mount("/a/b", app=site),
                Mount("/stripped", app=strip(site, "/stripped")),
                Mount("/", app=site),
            ]
        )
        with listen("127.0.0.1", 0) as listening:
            server = Server(root, on_stop=site.state.context.close)
            async with app:
                serving = asyncio.create_task(server.serve(sockets=[listening]))
                ready.append(World(app, asyncio.get_running_loop(), address_of(listening), site))
                working = asyncio.create_task(app.run_worker(concurrency=8, maintenance=maintenance))
                up.set()
                await stop.wait()
                ready[0].gate.set()
                server.stop()
                await serving
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)

    def go() -> None:
        try:
            asyncio.run(run())
        finally:
            up.set()

    thread = threading.Thread(target=go, name="dashboard world")
    thread.start()
    up.wait(30)
    try:
        yield ready[0]
    finally:
        if ready:
            ready[0].loop.call_soon_threadsafe(stop.set)
        thread.join(30)
