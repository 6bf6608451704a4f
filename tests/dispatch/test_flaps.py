"""A broker that comes and goes quickly: workers take from it again soon (research: row 22)."""

from __future__ import annotations

import asyncio

import pytest

from devservices.proxy import Proxy
from devservices.rabbitmq import RabbitMq
from devservices.redis import RedisServer
from tests.apps import working
from tests.dispatch.ledger import Ledger

pytestmark = pytest.mark.service


@pytest.mark.usefixtures("broker_only")
@pytest.mark.parametrize("within", [60, pytest.param(10, marks=pytest.mark.nightly)], ids="{}s".format)
async def test_after_three_quick_flaps_jobs_come_through_the_broker_soon(
    url: str, server: RedisServer | RabbitMq, within: int
) -> None:  # E45
    """Of a machine that others use, only that it happens is asked; of a quiet one, that it takes no longer than ten seconds."""
    with Proxy(server.host, server.port, postgres=False) as proxy:
        book = Ledger(url, proxy.route(server.url()))
        async with book.app as app, working(app):
            await book.note.enqueue(0)
            await book.all_ran(1)
            flapping, number = asyncio.create_task(asyncio.to_thread(proxy.flap)), 1
            while not flapping.done():
                await book.note.enqueue(number)
                number += 1
                await asyncio.sleep(0.05)
            await book.note.enqueue(number)
            async with asyncio.timeout(within):
                await book.all_ran(number + 1)
