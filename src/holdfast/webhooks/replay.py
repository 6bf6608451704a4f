"""Replays: past events are sent to a webhook again, by an operation that workers carry out in batches."""

from __future__ import annotations

from holdfast.engine.engine import Engine
from holdfast.engine.operation import BatchAction, Operation, OperationBatch, Progress
from holdfast.engine.recovery import BATCH
from holdfast.engine.tables import operations
from holdfast.errors import Conflict, UsageError
from holdfast.webhooks.delivery import find
from holdfast.webhooks.fanout import deliveries
from holdfast.webhooks.job_owners import JobOwners
from holdfast.webhooks.model import Webhook

#: How many of the latest operations are searched for a running replay.
_LATEST = 1000


async def begin_replay(
    engine: Engine,
    webhook: Webhook,
    after: int,
    before: int | None,
    *,
    by: str,
    owner: str | None,
    token: str | None,
) -> Operation:
    """Store and return the operation of a replay, which workers carry out. A *token* stores it once only.

    Raises:
        Conflict: Another replay of this webhook is running.
    """
    store, now = engine.store, engine.clock.now()
    operation_id = token or engine.ids.job_id()
    for other in await operations.newest(store, _LATEST):
        if _is_replay_of(other, webhook.id) and other.id != operation_id:
            raise Conflict(
                f"operation {other.id} replays the webhook {webhook.id}; wait for it, or cancel it"
            )
    # Only up to the newest event: a replay causes events itself and must not follow them.
    end = await store.queries.newest_event() + 1 if before is None else before
    return await operations.add(
        store,
        Operation(
            id=operation_id,
            action=BatchAction.REPLAY,
            filter={"webhook": webhook.id, "after": str(after), "before": str(end)},
            by=by,
            options={},
            owner=owner,
            created_at=now,
            updated_at=now,
        ),
    )


async def replay_batch(engine: Engine, operation: Operation) -> OperationBatch:
    """Enqueue the messages about the next events and return the progress.

    Repeated after a crash it creates no second job, because the ids are the same.

    Raises:
        UsageError: The webhook was removed or disabled.
    """
    webhook = await find(engine, operation.filter["webhook"])
    if webhook is None or not webhook.is_enabled:
        raise UsageError(f"the webhook is {'removed' if webhook is None else 'disabled'}")
    after, before = int(operation.cursor or operation.filter["after"]), int(operation.filter["before"])
    page = await engine.store.queries.events(after=after, limit=BATCH)
    events = [event for event in page if event.id < before]
    if not events:
        return OperationBatch(0, {}, operation.cursor, is_last=True)
    jobs = await deliveries([webhook], events, JobOwners(engine.store.queries.jobs), replay=operation.id)
    await engine.enqueue(jobs)
    return OperationBatch(len(jobs), {}, str(events[-1].id), is_last=len(events) < len(page))


def _is_replay_of(operation: Operation, webhook_id: str) -> bool:
    is_running = operation.action is BatchAction.REPLAY and operation.progress is Progress.RUNNING
    return is_running and operation.filter["webhook"] == webhook_id
