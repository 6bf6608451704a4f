"""Running an operation on its line; once more when the server undid it or the connection was lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from holdfast.engine.ports import Clock
from holdfast.errors import StoreUnavailable
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.driver_errors import PASSING

T = TypeVar("T")

#: How often an operation is sent before the trouble is told: each is repeatable (rule 3 of docs/explanation/reliability.md).
TRIES = 4
#: Seconds before the second try; three times as long before each one after.
FIRST_PAUSE = 0.02

#: The server undid the transaction, certainly: it may be sent again whatever it is.
UNDONE = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_WORTH_ANOTHER = (*PASSING, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)


class Runner:
    def __init__(self, lines: Connections, clock: Clock) -> None:
        self._lines, self._clock = lines, clock

    async def run(
        self,
        line: str,
        operation: Callable[[asyncpg.Connection[Any]], Awaitable[T]],
        again: tuple[type[BaseException], ...] = _WORTH_ANOTHER,
    ) -> T:
        """*again* says after which of the driver's errors it is sent again."""
        pause = FIRST_PAUSE
        for left in range(TRIES, 0, -1):
            try:
                async with self._lines.take(line) as connection:
                    return await operation(connection)
            except StoreUnavailable as error:
                if left == 1 or not isinstance(error.__cause__, again):
                    raise
                await self._clock.sleep(pause)
                pause *= 3
        raise AssertionError("unreachable")
