"""An app behind its HTTP API, keys of every role, and short words for what the tests ask."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import count
from typing import Any

import httpx2
from fastapi import FastAPI
from pydantic import TypeAdapter

from holdfast import Holdfast, Retry
from holdfast.engine.access import AccessKey, Role
from holdfast.engine.tables import access_keys
from holdfast.jobs.job import JobId, Lane, Settlement
from holdfast.jobs.verdict import Bury, Failure
from holdfast.server import api
from holdfast.server.routes import document
from holdfast.server.routing import ApiRoute
from holdfast.stores.memory import MemoryStore
from holdfast.wiring import SystemClock

API = "/api/v1"
_numbers = count(1)
_LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def new_app(url: str = "memory://", **settings: Any) -> Holdfast:
    if url == "memory://":  # one store, whichever event loop a test has
        settings["store"] = MemoryStore(settings.get("clock") or SystemClock())
    app = Holdfast(url, **settings)

    @app.task(queue="press", depends_on="gateway", retry=Retry(3), http=True)
    async def convert(pdf: str, pages: int = 1) -> str:
        return f"{pdf}:{pages}"

    @app.task(http=True)
    async def note(text: str) -> str:
        return text

    return app


@dataclass
class House:
    app: Holdfast
    site: FastAPI
    secrets: dict[str, str] = field(default_factory=dict)

    async def key(self, role: Role, owner: str | None = None, *, lasts: timedelta | None = None) -> str:
        """A new key; its secret."""
        number = next(_numbers)
        secret = f"test-secret-{number}-of-{role}"
        key = AccessKey(
            id=f"key-{number}",
            name=f"{role}-{number}",
            role=role,
            owner=owner,
            digest=sha256(secret.encode()).digest(),
            created_at=_LONG_AGO,
        )
        await access_keys.add((await self.app.runtime.engine()).store, key, lasts=lasts)
        return secret

    async def as_(self, role: Role, owner: str | None = None) -> dict[str, str]:
        """The headers of a caller of this role; the same key each time."""
        name = f"{role}:{owner}"
        if name not in self.secrets:
            self.secrets[name] = await self.key(role, owner)
        return {"Authorization": f"Bearer {self.secrets[name]}"}

    @asynccontextmanager
    async def client(self, host: str = "127.0.0.1", **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
        transport = httpx2.ASGITransport(app=self.site, client=(host, 4711), raise_app_exceptions=True)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", **options) as client:
            yield client

    async def enqueue(self, owner: str | None = "alice", **args: Any) -> JobId:
        task = self.app.tasks["convert"].options(owner=owner)
        return (await task.enqueue(**{"pdf": "a.pdf", **args})).id

    async def dead(self, owner: str | None = "alice") -> JobId:
        """A job that has failed for good."""
        job_id = await self.enqueue(owner)
        store = (await self.app.runtime.engine()).store
        session = await store.open_session(f"worker-{next(_numbers)}", timedelta(minutes=1))
        lane = Lane("press", "convert", "gateway", fair=owner is not None)
        claimed = await store.claim(session, [lane], 100)
        for one in claimed:
            if one.lease.job_id == job_id:
                failure = Failure("BOOM", "It went wrong.", fingerprint="cafe", detail="RuntimeError: boom")
                await store.settle([Settlement(one.lease, Bury(failure), one.attempt)])
        await store.close_session(session)
        return job_id


def new_house(app: Holdfast | None = None, **options: Any) -> House:
    app = app or new_app()
    return House(app, api(app, **{"rate": None, **options}))


def assert_as_documented(route: ApiRoute, answer: httpx2.Response) -> None:
    """Its status is one that the document tells of, and so is its body."""
    method = min(route.methods or ()).lower()
    told = document()["paths"][route.path_format][method]["responses"].get(str(answer.status_code))
    assert told is not None, f"{method} {route.path}: {answer.status_code} is not in the document"
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if answer.content:
        assert kind in told["content"], f"{method} {route.path}: {kind} is not in the document"
    if kind == "application/json" and answer.is_success:
        other = route.responses.get(answer.status_code, {}).get("model")
        TypeAdapter(other or route.response_model).validate_python(answer.json())
