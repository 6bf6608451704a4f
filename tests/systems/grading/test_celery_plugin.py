"""A stock Celery worker executes what Holdfast publishes, in Celery's own protocol, and reports back signed (E45)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from holdfast import Holdfast
from holdfast.celery import encode_task, verify
from tests.services import zygote
from tests.services.rabbitmq import RabbitMq

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
SECRET = "what the shop and its workers know"


@pytest.fixture
def url(rabbitmq: RabbitMq) -> str:
    return rabbitmq.create_vhost("shop")


@pytest.fixture
def worker(url: str, tmp_path: Path) -> Iterator[None]:
    command = [
        "celery",
        "-q",
        "-A",
        "tests.systems.grading.stock_celery",
        "worker",
        "-P",
        "solo",
        "-l",
        "error",
        "-n",
        "shop@test",
    ]
    environment = os.environ | {"BROKER_URL": url, "CALLBACK_SECRET": SECRET}
    with (tmp_path / "log").open("w") as log:
        process: subprocess.Popen[bytes] = zygote.Process(
            [sys.executable, "-m", *command],
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


async def test_a_stock_worker_does_what_the_outbox_tells_and_signs_what_came_of_it(  # E45
    url: str, worker: None, tmp_path: Path
) -> None:
    app = Holdfast(f"sqlite:///{tmp_path / 'shop.db'}")
    app.topic("shop.tasks", to=url)
    connection = await aio_pika.connect(url)
    async with connection, app:
        channel = await connection.channel()
        await channel.declare_queue("shop.tasks", durable=True)
        arguments: dict[str, Any] = {"x-queue-type": "quorum"}
        callbacks = await channel.declare_queue("shop.callback", durable=True, arguments=arguments)
        for order in (1, 2, 3):
            message = encode_task("shop.ship", kwargs={"order": order}, task_id=f"order-{order}")
            await app.publish("shop.tasks", message.body, id=f"order-{order}", headers=message.headers)
        await app.run_relay(until_idle=True)
        told: list[dict[str, Any]] = []
        async with asyncio.timeout(40), callbacks.iterator() as coming:
            async for callback in coming:
                verify([SECRET], callback.headers, callback.message_id, callback.body)
                told.append(json.loads(callback.body))
                await callback.ack()
                if sum(one["status"] in ("completed", "failed") for one in told) == 3:
                    break
    by_order = {
        order: [(one["status"], one["attempt"]) for one in told if one["id"] == f"order-{order}"]
        for order in (1, 2, 3)
    }
    assert by_order[1] == [("processing", 1), ("completed", 1)]
    assert by_order[2] == [("processing", 1), ("failed", 1)]
    assert by_order[3] == [("processing", 1), ("error", 1), ("processing", 2), ("completed", 2)]
    results = {one["id"]: one.get("result") or one.get("error") for one in told}
    assert results["order-1"] == {"parcel": 100}
    assert results["order-2"] == {"code": "ValueError", "message": "no such order"}
