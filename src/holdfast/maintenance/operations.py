"""The maintenance task that carries out operations, one step at a time.

Any number of processes may run it, but each operation is worked on by one process at a time, which takes it
for a span. If that process is killed, another one continues from the last counted step when the span is
over. A rate limit is kept by holding the operation for as long as its step may take.
"""

from __future__ import annotations

from holdfast.engine.batches import SPAN, next_step
from holdfast.engine.engine import Engine
from holdfast.engine.operation import Operation, Progress
from holdfast.engine.recovery import BATCH
from holdfast.engine.tables import operations, requests
from holdfast.errors import UsageError
from holdfast.logging import Log

log = Log("holdfast.maintenance")

OPERATIONS_EVERY = 0.5
FORGET_EVERY = 60.0
#: How many jobs are processed before they are counted.
BATCH_OF_OPERATION = 50
#: How long the other maintenance tasks may wait for operations, in seconds.
TURN = 0.5


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
        clock, store = self._engine.clock, self._engine.store
        while True:
            try:
                step = await next_step(self._engine, operation, BATCH_OF_OPERATION)
            except UsageError as error:  # stored by another version, or by hand
                await operations.end(store, operation.id, Progress.FAILED, error=str(error))
                log.warning("operation.failed", operation=operation.id, reason=str(error))
                return
            if step is None:
                return  # cancelled, or taken by another process while this one was frozen
            continues = not step.rest and step.end is None and clock.monotonic() < until
            span = SPAN if continues or step.end is not None else step.rest
            advanced = await operations.advance(store, step.operation, span)
            if advanced is None:
                return
            operation = advanced
            if step.end is not None:
                await self._end(operation, step.end, step.reason)
            if not continues:
                return

    async def _end(self, operation: Operation, progress: Progress, reason: str | None) -> None:
        await operations.end(self._engine.store, operation.id, progress, error=reason)
        facts = {"operation": operation.id, "action": str(operation.action)}
        if progress is Progress.STOPPED:
            log.warning("operation.stopped", reason=reason, **facts)
        else:
            log.info("operation.completed", **facts)


async def forget(engine: Engine) -> int:
    """Delete the expired records of named requests and of operations. Return how many were deleted."""
    total = 0
    for forget_batch in (requests.forget, operations.forget):
        while deleted := await forget_batch(engine.store, BATCH):
            total += deleted
            if deleted < BATCH:
                break
    return total
