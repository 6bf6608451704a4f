"""Every road by which a task could be called from outside, for any app behind its HTTP API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import httpx2

from holdfast import Holdfast
from holdfast.engine.tables import operations
from holdfast.jobs.internal import is_internal
from holdfast.jobs.job import JobId, NewJob, Settlement
from holdfast.jobs.verdict import Bury, Failure
from holdfast.tasks.payload import encode
from holdfast.webhooks.signature import sign
from tests.server.world import API

_names = count(1)


@dataclass
class World:
    """An app behind its API, and who asks."""

    app: Holdfast
    client: httpx2.AsyncClient
    args: dict[str, dict[str, Any]]  #: what each task is called with
    queue: str  #: another one than the tasks' own, which is declared
    owner: str | None = None  #: whose jobs these are
    named: bool = False  #: whether requests say so: they are staff's, and not an owner's
    stored: dict[str, dict[str, Any]] | None = None  #: what jobs are there with, if not with these arguments
    also: tuple[str, ...] = ()  #: a task that may be called by whoever asks, for batches

    async def job(self, task: str) -> JobId:
        """A dead letter of *task*, of the owner; the engine's own are nobody's."""
        engine = await self.app.runtime.engine()
        if is_internal(task):
            payload = encode(self.args[task], what="arguments")
            row = NewJob(engine.ids.job_id(), payload, self.app.tasks[task].plain_spec)
            await engine.enqueue([row])
            made = row.id
        else:
            stored = (self.stored or self.args)[task]
            made = (await self.app.tasks[task].options(owner=self.owner).enqueue(**stored)).id
        await self.bury_all()
        assert (await self.app.jobs.get(made)).state == "failed"
        return made

    async def bury_all(self) -> None:
        store = (await self.app.runtime.engine()).store
        session = await store.open_session(f"worker-{next(_names)}", timedelta(minutes=1))
        for one in await store.claim(session, sorted(await store.lanes.all()), 1000):
            await store.settle([Settlement(one.lease, Bury(Failure("BOOM", "It went wrong.")), one.attempt)])
        await store.close_session(session)

    async def state(self) -> tuple[Any, ...]:
        """All that a request could have changed."""
        engine = await self.app.runtime.engine()
        begun = [one.id for one in await operations.newest(engine.store, 100)]
        return await self.app.jobs.counts(internal=True), await engine.store.queries.newest_event(), begun

    async def post(self, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        return await self.client.post(f"{API}/{path}", json=body, headers=headers)

    def new(self, task: str) -> dict[str, Any]:
        whose = {"owner": self.owner} if self.named else {}
        return {"task": task, "args": self.args[task], **whose}

    async def observed(self, road: Road, task: str) -> tuple[httpx2.Response, Any, Any]:
        """The answer, and how it was right before and after the request."""
        seen: list[Any] = []

        async def note(request: httpx2.Request) -> None:
            seen.append(await self.state())

        self.client.event_hooks = {"request": [note]}
        answer = await road(self, task)
        self.client.event_hooks = {"request": []}
        return answer, seen[-1], await self.state()


async def enqueue(world: World, task: str) -> httpx2.Response:
    return await world.post("jobs", world.new(task))


async def enqueue_named(world: World, task: str) -> httpx2.Response:
    headers = {"Idempotency-Key": f'"name-{next(_names)}"'}
    return await world.post("jobs", world.new(task), **headers)


async def enqueue_deduped(world: World, task: str) -> httpx2.Response:
    return await world.post("jobs", world.new(task) | {"dedupe_key": "one"})


async def enqueue_batch(world: World, task: str) -> httpx2.Response:
    """One that may go, and then the one in question: all or none."""
    return await world.post("jobs/batch", {"jobs": [world.new(one) for one in (*world.also, task)]})


async def retry(world: World, task: str) -> httpx2.Response:
    return await world.post(f"jobs/{await world.job(task)}/retry")


async def retry_edited(world: World, task: str) -> httpx2.Response:
    return await world.post(f"jobs/{await world.job(task)}/retry", {"args": world.args[task]})


async def redrive(world: World, task: str) -> httpx2.Response:
    return await world.post(f"dead-letters/{await world.job(task)}/redrive")


async def redrive_elsewhere(world: World, task: str) -> httpx2.Response:
    return await world.post(f"dead-letters/{await world.job(task)}/redrive", {"to_queue": world.queue})


async def retry_all(world: World, task: str) -> httpx2.Response:
    await world.job(task)
    return await world.post("operations", {"action": "retry", "filter": {"task": [task]}})


async def redrive_all(world: World, task: str) -> httpx2.Response:
    await world.job(task)
    body = {"action": "redrive", "filter": {"task": [task]}, "to_queue": world.queue}
    return await world.post("operations", body)


async def redrive_patched(world: World, task: str) -> httpx2.Response:
    """The patch makes any call to the one in question: arguments that it does not name are removed."""
    await world.job(task)
    removed = dict.fromkeys((*world.app.tasks[task].signature.names, "nothing"))
    body = {"action": "redrive", "filter": {"task": [task]}, "patch": removed | world.args[task]}
    return await world.post("operations", body)


async def ask_by_message(world: World, task: str) -> httpx2.Response:
    made = await world.app.webhooks.create_inbound(owner=None if world.named else world.owner)
    content = f'{{"action":"retry","job":"{await world.job(task)}"}}'.encode()
    headers = sign(made.secrets, f"msg-{next(_names)}", datetime.now(UTC), content)
    return await world.client.post(f"{API}/inbound/{made.id}", content=content, headers=headers)


Road = Callable[[World, str], Awaitable[httpx2.Response]]
#: By the route that they take. Every route that can make a task run is here.
ROADS: dict[str, tuple[Road, ...]] = {
    "enqueue_job": (enqueue, enqueue_named, enqueue_deduped),
    "enqueue_jobs": (enqueue_batch,),
    "retry_job": (retry, retry_edited),
    "redrive_dead_letter": (redrive, redrive_elsewhere),
    "begin_operation": (retry_all, redrive_all, redrive_patched),
    "receive_webhook": (ask_by_message,),
}
#: Routes of the same actions that make nothing run.
ENDING = {"cancel_job", "discard_dead_letter", "cancel_operation", "open_session"}
ALL = [road for roads in ROADS.values() for road in roads]
