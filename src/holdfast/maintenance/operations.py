"""The maintenance task that carries out operations, one batch at a time.

Any number of processes may run it, but each operation is worked on by one process at a time, which takes it
for a span. If that process is killed, another one continues from the last counted batch when the span is
over. A rate limit is kept by holding the operation for as long as its batch may take.
"""

from __future__ import annotations

from datetime import timedelta

from holdfast.engine.engine import Engine
from holdfast.engine.operation import Operation, Progress
from holdfast.engine.operations import do_batch
from holdfast.engine.recovery import BATCH
from holdfast.engine.tables import operations, requests
from holdfast.errors import UsageError
from holdfast.logging import Log

log = Log("holdfast.maintenance")

OPERATIONS_EVERY = 0.5
FORGET_EVERY = 60.0
#: For how long a process takes an operation: longer than a slow batch.
SPAN = timedelta(seconds=30)
#: How many jobs are processed before they are counted.
BATCH_OF_OPERATION = 50
#: How long the other maintenance tasks may wait for operations, in seconds.
TURN = 0.5
#: How many seconds' worth of jobs one batch has under a rate limit.
_BURST = 0.25


class OperationRunner:
    """Carries out the operations of a store in this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def run(self) -> None:
        """Work on the running operations in turn, for at most about `TURN` seconds."""
        until = self._engine.clock.monotonic() + TURN
        while (operation := await operations.take(self._engine.store, SPAN)) is not None:
            await self._work(operation, until)
            if self._engine.clock.monotonic() >= until:
                break

    async def _work(self, operation: Operation, until: float) -> None:
        clock, store, rate = self._engine.clock, self._engine.store, operation.rate
        most = BATCH_OF_OPERATION if rate is None else max(1, min(BATCH_OF_OPERATION, int(rate * _BURST)))
        while True:
            try:
                batch = await do_batch(self._engine, operation, most)
            except UsageError as error:  # stored by another version, or by hand
                await operations.end(store, operation.id, Progress.FAILED, error=str(error))
                log.warning("operation.failed", operation=operation.id, reason=str(error))
                return
            continues = rate is None and not batch.is_last and clock.monotonic() < until
            span = SPAN if continues or batch.is_last else timedelta(seconds=batch.done / rate if rate else 0)
            advanced = await operations.advance(
                store, operation, cursor=batch.cursor, done=batch.done, refused=batch.refused, span=span
            )
            if advanced is None:
                return  # cancelled, or taken by another process while this one was frozen
            operation = advanced
            if batch.is_last:
                await operations.end(store, operation.id, Progress.DONE)
                log.info("operation.completed", operation=operation.id, action=str(operation.action))
            if not continues:
                return


async def forget(engine: Engine) -> int:
    """Delete the expired records of named requests and of operations. Return how many were deleted."""
    total = 0
    for forget_batch in (requests.forget, operations.forget):
        while deleted := await forget_batch(engine.store, BATCH):
            total += deleted
            if deleted < BATCH:
                break
    return total
