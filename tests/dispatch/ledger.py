"""An app whose jobs come from a broker, and the ways to lose what the broker holds."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis

from devservices.rabbitmq import RabbitMq
from devservices.redis import RedisServer
from holdfast import Holdfast, Retry
from holdfast.engine.dispatcher import Dispatcher
from tests.apps import new_app, until


class Ledger:
    """An app with one task, and what it has done."""

    def __init__(self, url: str, dispatch: str, **settings: Any) -> None:
        self.ran: list[int] = []
        self.app: Holdfast = new_app(url, dispatch=dispatch, **settings)

        @self.app.task(retry=Retry(3, base="50ms", jitter="none"))
        async def note(number: int, fails: bool = False) -> int:
            self.ran.append(number)
            if fails and self.ran.count(number) == 1:
                raise ConnectionError("the first time")
            return number

        self.note = note

    async def broker(self) -> Dispatcher:
        broker = (await self.app.runtime.engine()).broker
        assert broker is not None
        return broker

    async def ended(self, numbers: int) -> None:
        async def ended() -> bool:
            return (await self.app.jobs.counts())["complete"] == numbers

        await until(ended)

    async def all_ran(self, numbers: int) -> None:
        """Until each of so many has ended; and each has run once."""
        await self.ended(numbers)
        assert sorted(self.ran) == list(range(numbers))


async def empty(server: RedisServer | RabbitMq, app: Holdfast) -> None:
    """Lose everything that the broker holds, as an operator's mistake would."""
    if isinstance(server, RedisServer):
        client: Any = Redis.from_url(server.url())
        await client.flushall()
        await client.aclose()
        return
    engine = await app.runtime.engine()
    assert engine.broker is not None
    await engine.broker.ask(lambda dispatch: dispatch.forget([task.lane for task in app.tasks.values()]))
