"""Operations are done here: a batch at a time, by any number of processes, each operation by one of them at a time.

A worker takes an operation for a span. If it is killed, another one continues when the span is over, from the last
batch that was counted. A rate is kept by leaving the operation taken for as long as its batch may take.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from holdfast.domain.operation import Operation, Progress
from holdfast.engine.engine import Engine
from holdfast.engine.operations import do_batch
from holdfast.engine.recovery import BATCH
from holdfast.errors import UsageError
from holdfast.logs import Log

log = Log("holdfast.maintenance")

OPERATIONS_EVERY = 0.5
FORGET_EVERY = 60.0
#: For so long an operation is ours: longer than a batch takes on a bad day.
SPAN = timedelta(seconds=30)
#: How many jobs are worked on before they are counted.
BATCH_OF_OPERATION = 50
#: How long the other duties may wait for operations, in seconds.
TURN = 0.5
#: How many seconds' worth of jobs are done at once where there is a rate.
_BURST = 0.25


class OperationRunner:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def run(self) -> None:
        """Work on whatever runs, in turns, until it is time for the other duties."""
        until = self._engine.clock.monotonic() + TURN
        while (operation := await self._engine.store.take_operation(SPAN)) is not None:
            await self._work(operation, until)
            if self._engine.clock.monotonic() >= until:
                break

    async def _work(self, operation: Operation, until: float) -> None:
        clock, store, rate = self._engine.clock, self._engine.store, operation.rate
        most = BATCH_OF_OPERATION if rate is None else max(1, min(BATCH_OF_OPERATION, int(rate * _BURST)))
        while True:
            try:
                batch = await do_batch(self._engine, operation, most)
            except UsageError as error:  # kept by another version, or by hand
                await store.end_operation(operation.id, Progress.FAILED, error=str(error))
                log.warning("operation.failed", operation=operation.id, reason=str(error))
                return
            goes_on = rate is None and not batch.is_last and clock.monotonic() < until
            span = SPAN if goes_on or batch.is_last else timedelta(seconds=batch.done / rate if rate else 0)
            if not await store.advance_operation(
                operation, cursor=batch.cursor, done=batch.done, refused=batch.refused, span=span
            ):
                return  # cancelled, or taken by another while we were frozen
            operation = replace(operation, cursor=batch.cursor)
            if batch.is_last:
                await store.end_operation(operation.id, Progress.DONE)
                log.info("operation.completed", operation=operation.id, action=str(operation.action))
            if not goes_on:
                return


async def forget(engine: Engine) -> int:
    """Remove what the front doors have kept long enough; how much."""
    total = 0
    while gone := await engine.store.forget_requests(BATCH):
        total += gone
        if gone < BATCH:
            break
    return total
