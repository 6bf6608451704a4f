"""A stock Celery worker executes jobs, in the protocol of Celery itself, and reports back signed (E45)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage, AbstractQueue

from devservices.rabbitmq import RabbitMq
from holdfast import Holdfast, JobFailed, Task
from holdfast.celery import for_celery, split_external_task_id, verify
from holdfast.external import Done, Failed, Requeue

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
SECRET = "what the shop and its workers know"


@pytest.fixture
def url(rabbitmq: RabbitMq) -> str:
    return rabbitmq.create_vhost("shop")


@contextmanager
def stock_worker(url: str, folder: Path) -> Iterator[None]:
    command = "celery -q -A tests.systems.grading.stock_celery worker -P solo -l error -n shop@test"
    environment = os.environ | {"BROKER_URL": url, "CALLBACK_SECRET": SECRET}
    with (folder / "log").open("w") as log:
        process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-m", *command.split()],
            cwd=Path(__file__).parents[3],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def shop(url: str, tmp_path: Path, *, again_after: str = "5m") -> tuple[Holdfast, Task[..., Any]]:
    app = Holdfast(f"sqlite:///{tmp_path / 'shop.db'}")
    app.topic("shop.tasks", to=url)

    @app.task(
        execute="external",
        topic="shop.tasks",
        encode=for_celery("shop.ship"),
        again_after=again_after,
        deadline="10m",
    )
    async def ship(order: int) -> dict[str, int]:
        raise AssertionError("Celery does it")

    return app, ship


async def receive(app: Holdfast, callback: AbstractIncomingMessage) -> dict[str, Any]:
    """What a reader of callbacks does."""
    verify([SECRET], callback.headers, callback.message_id, callback.body)
    told: dict[str, Any] = json.loads(callback.body)
    job_id, generation = split_external_task_id(told["id"])
    about: dict[str, Any] = {"generation": generation, "worker": told["worker"]}
    match told["status"]:
        case "processing":
            await app.external.begin(job_id, **about)
        case "error":  # Celery tries it again by itself
            await app.external.end(job_id, Requeue("0s", told["error"]["code"]), **about)
        case "completed":
            await app.external.end(job_id, Done(told["result"]), **about)
        case _:
            await app.external.end(job_id, Failed("NO_SUCH_ORDER", told["error"]["message"]), **about)
    return told


@asynccontextmanager
async def broker(url: str) -> AsyncIterator[tuple[AbstractQueue, AbstractQueue]]:
    """The queues of tasks and of callbacks."""
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        arguments: dict[str, Any] = {"x-queue-type": "quorum"}
        tasks = await channel.declare_queue("shop.tasks", durable=True)
        yield tasks, await channel.declare_queue("shop.callback", durable=True, arguments=arguments)


async def test_a_stock_worker_executes_jobs_and_what_it_signs_ends_them(
    url: str, tmp_path: Path
) -> None:  # E45
    """Of a task that reports nothing the broker tells us nothing either: it ends by its deadline."""
    app, ship = shop(url, tmp_path)

    @app.task(execute="external", topic="shop.tasks", encode=for_celery("shop.note"), deadline="15s")
    async def note(file: str) -> None:
        raise AssertionError("Celery does it")

    told: dict[int, list[tuple[str, int]]] = {1: [], 2: [], 3: []}
    with stock_worker(url, tmp_path):
        async with broker(url) as (_, callbacks), app:
            silent = await note.enqueue(str(tmp_path / "noted"))
            orders = {(await ship.enqueue(order)).id: order for order in told}
            await app.outbox.run_relay(until_idle=True)
            ended = 0
            async with asyncio.timeout(40), callbacks.iterator() as coming:
                async for callback in coming:
                    news = await receive(app, callback)
                    told[orders[split_external_task_id(news["id"])[0]]].append(
                        (news["status"], news["attempt"])
                    )
                    await callback.ack()
                    ended += news["status"] in ("completed", "failed")
                    if ended == len(told):
                        break
            rows = {order: await app.jobs.get(job_id) for job_id, order in orders.items()}
            assert (tmp_path / "noted").exists()
            sweeping = asyncio.create_task(app.run_maintenance())
            with pytest.raises(JobFailed, match="TIMEOUT"):
                await silent.result("40s")
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)
    assert told == {
        1: [("processing", 1), ("completed", 1)],
        2: [("processing", 1), ("failed", 1)],
        3: [("processing", 1), ("error", 1), ("processing", 2), ("completed", 2)],
    }
    assert [row.state for row in rows.values()] == ["complete", "failed", "complete"]
    assert (rows[1].result, rows[2].error_code) == ({"parcel": 100}, "NO_SUCH_ORDER")
    assert rows[3].attempt == 1  # what Celery tries again by itself is no attempt of ours


async def test_a_stock_worker_begins_nothing_after_the_deadline(url: str, tmp_path: Path) -> None:  # E15
    """The message was published in time and waited in the queue for too long."""
    app, ship = shop(url, tmp_path)
    async with broker(url) as (_, callbacks), app:
        late = await ship.options(deadline="500ms").enqueue(1)
        await app.outbox.run_relay(until_idle=True)
        [message] = await app.outbox.list(topic="shop.tasks")
        assert message.state == "published"
        sweeping = asyncio.create_task(app.run_maintenance())
        with pytest.raises(JobFailed, match="TIMEOUT"):
            await late.result("20s")
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
        in_time = await ship.enqueue(4)
        await app.outbox.run_relay(until_idle=True)
        told: list[str] = []
        with stock_worker(url, tmp_path):  # it takes them in their order, one at a time
            async with asyncio.timeout(40), callbacks.iterator() as coming:
                async for callback in coming:
                    news = await receive(app, callback)
                    await callback.ack()
                    told.append(news["id"])
                    if news["status"] == "completed":
                        break
        assert told == [f"{in_time.id}.1"] * 2
        assert await app.jobs.late_results(late.id) == []


async def test_what_was_purged_is_told_again_and_what_comes_twice_ends_it_once(
    url: str, tmp_path: Path
) -> None:  # E45
    app, ship = shop(url, tmp_path, again_after="1s")
    async with broker(url) as (tasks, callbacks), app:
        handle = await ship.enqueue(1)
        await app.outbox.run_relay(until_idle=True)
        assert (await tasks.purge()).message_count == 1
        with stock_worker(url, tmp_path):
            working = asyncio.create_task(app.run_worker(relay=True))
            try:
                async with asyncio.timeout(40), callbacks.iterator() as coming:
                    async for callback in coming:
                        await receive(app, callback)
                        again = await receive(app, callback)  # as if it came twice
                        await callback.ack()
                        if again["status"] == "completed":
                            break
            finally:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
        assert await handle.result("1s") == {"parcel": 100}
        kinds = [event.kind for event in await app.events.list(job_id=handle.id)]
    assert kinds == ["queued", "processing", "complete"]
