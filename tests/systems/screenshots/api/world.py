"""The screenshots for tests: the real app on a real store, the real site, and a worker of this process.

Pictures are taken by a real Chromium, or, where a test is about everything but the picture, by an `Easel`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from holdfast.contrib.credits import Credits
from systems.screenshots.codes import Code
from systems.screenshots.failures import ShotFailed
from systems.screenshots.records import Books, open_books
from systems.screenshots.settings import Settings
from systems.screenshots.shot import Picture, Shot
from systems.screenshots.tasks import Camera, Screenshots, build
from systems.screenshots.web.site import make_site

#: Quick in everything; tests that want waits write a file of their own.
POLICIES = """
[tasks.SCREENSHOT]
max_attempts = 3
backoff = { fixed = "50ms", jitter = "none" }
[tasks.PDF_GENERATION]
max_attempts = 2
backoff = { fixed = "50ms", jitter = "none" }
"""
QUICK = {"poll": "20ms", "reclaim_every": "50ms", "stuck_every": "250ms", "grace": "1s"}
SHOTS = "/api/v1/screenshots"
ADMIN = "/api/v1/admin"
PAGE = "https://example.com/page"
T = TypeVar("T")


async def eventually(look: Callable[[], Awaitable[T]], *, every: float = 0.02, within: float = 20.0) -> T:
    """What *look* finds, once it finds anything."""
    async with asyncio.timeout(within):
        while True:
            if found := await look():
                return found
            await asyncio.sleep(every)


class Easel:
    """Takes no time and needs no page. What a URL's path says first is what happens: `/fail` always, `/fail-2/x` the first two
    times, `/code-X/x` always with the code X, `/hang/x` until `free` is set; anything else is a picture. What hung fails with
    the code *after*, if there is one; *status* is what pages answer."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()  #: how often each URL was begun
        self.free = asyncio.Event()
        self.after: str | None = None
        self.status = 200

    async def shoot(self, shot: Shot) -> Picture:
        self.taken[shot.url] += 1
        what, _, number = shot.url.split("/")[3].partition("-")
        match what:
            case "fail" if not number or self.taken[shot.url] <= int(number):
                raise ShotFailed(Code.CONNECTION_FAILED)
            case "code":
                raise ShotFailed(Code(number))
            case "bad":
                raise ShotFailed(Code.SELECTOR_NOT_FOUND)
            case "hang":
                await self.free.wait()
                if self.after is not None:
                    raise ShotFailed(Code(self.after))
        return Picture(
            data=b"\x89PNG a picture", format=shot.format, width=1, height=1, url=shot.url, status=self.status
        )


class World:
    """One database, one folder, one browser."""

    def __init__(
        self,
        folder: Path,
        database_url: str,
        browser: Camera,
        *,
        policies: str = POLICIES,
        sla: str = "",
        options: dict[str, Any] | None = None,
        **knobs: Any,
    ) -> None:
        self.folder, self.browser = folder, browser
        (folder / "holdfast.toml").write_text(policies)
        (folder / "sla.toml").write_text(sla)
        self.settings = Settings(
            **{
                "database_url": database_url,
                "images_dir": folder / "images",
                "policies_file": folder / "holdfast.toml",
                "sla_file": folder / "sla.toml",
                "books_every_sec": 3_600,  # tests keep them when they want to know
                **knobs,
            }
        )
        self.screenshots: Screenshots = build(
            self.settings,
            open_browser=lambda: contextlib.nullcontext(browser),
            **(QUICK | (options or {})),
        )
        self.app = self.screenshots.app
        self.keys: dict[str, str] = {}
        self._http: httpx2.AsyncClient | None = None
        self.books: Books

    @contextlib.asynccontextmanager
    async def open(self, *, works: bool = True, credits: int = 100) -> AsyncIterator[World]:  # noqa: A002
        """The site serves, keys and credits are there, and a worker works unless told otherwise."""
        await self.app.migrate()
        async with contextlib.AsyncExitStack() as stack:
            served = make_site(self.screenshots)
            await stack.enter_async_context(served.router.lifespan_context(served))
            self.books = await stack.enter_async_context(open_books(self.settings.database_url))
            for who, owner in (("ann", "user:7"), ("bob", "user:8"), ("acme", "org:acme")):
                self.keys[who] = (await self.app.keys.create("owner", owner=owner, name=who))[1]
                if credits:
                    await Credits.of(self.app).grant(owner, credits)
            for role in ("viewer", "operator"):
                self.keys[role] = (await self.app.keys.create(role, name=role))[1]
            transport = httpx2.ASGITransport(served, raise_app_exceptions=False)
            self._http = await stack.enter_async_context(
                httpx2.AsyncClient(transport=transport, base_url="http://shots")
            )
            if works:
                await stack.enter_async_context(self.working())
            yield self

    @contextlib.asynccontextmanager
    async def working(self, **options: Any) -> AsyncIterator[None]:
        worker = asyncio.create_task(self.app.run_worker(**options))
        try:
            await eventually(self.app.queues.workers)
            yield
        finally:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)

    # -- asking -------------------------------------------------------------------------------------------------------
    async def ask(
        self, who: str, method: str, path: str, body: Any = None, **headers: str
    ) -> httpx2.Response:
        assert self._http is not None
        if who in self.keys:
            headers["authorization"] = f"Bearer {self.keys[who]}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self._http.request(method, path, json=body, headers=named)

    async def shot(self, who: str = "ann", url: str = PAGE, **body: Any) -> str:
        """Asked for; the id of its job."""
        answer = await self.ask(who, "POST", SHOTS, {"url": url, **body})
        assert answer.status_code == 202, answer.text
        job_id: str = answer.json()["jobId"]
        return job_id

    async def retry(self, job_id: str, who: str = "ann", body: Any = None) -> httpx2.Response:
        return await self.ask(who, "POST", f"{SHOTS}/{job_id}/retry", body or {})

    async def look(self, job_id: str) -> dict[str, Any]:
        shown: dict[str, Any] = (await self.ask("operator", "GET", f"{SHOTS}/{job_id}")).json()
        return shown

    async def until(self, job_id: str, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async def look() -> dict[str, Any] | None:
            shown = await self.look(job_id)
            return shown if true(shown) else None

        return await eventually(look) or {}

    async def ended(self, job_id: str) -> dict[str, Any]:
        return await self.until(job_id, lambda shown: shown["status"] in ("COMPLETED", "FAILED", "CANCELLED"))

    async def running(self, job_id: str) -> dict[str, Any]:
        return await self.until(job_id, lambda shown: shown["status"] == "PROCESSING")

    async def stuck(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.ask("operator", "GET", f"{ADMIN}/jobs/stuck")).json()[
            "jobs"
        ]
        return found

    async def kinds(self, job_id: str) -> list[str]:
        return [event.kind for event in await self.app.events.list(job_id=job_id)]

    async def balance(self, owner: str = "user:7") -> tuple[int, int, int]:
        """Available, reserved, spent; after a look that the whole ledger balances."""
        assert await Credits.of(self.app).check() == []
        account = await Credits.of(self.app).account(owner)
        return account.available, account.reserved, account.spent
