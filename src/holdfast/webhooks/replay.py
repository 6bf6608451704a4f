"""A replay: events of the log are sent to a webhook once more, as an operation that workers carry out in batches."""

from __future__ import annotations

from holdfast.domain.operation import Operation, OperationAction, OperationBatch, Progress
from holdfast.domain.webhook import Webhook
from holdfast.engine.engine import Engine
from holdfast.engine.recovery import BATCH
from holdfast.errors import Conflict, UsageError
from holdfast.webhooks.delivery import find
from holdfast.webhooks.fanout import deliveries
from holdfast.webhooks.job_owners import JobOwners

#: How many operations are searched for a replay that still runs.
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
    """Store a replay for workers to carry out. Under the same *token* it is stored once."""
    store, now = engine.store, engine.clock.now()
    operation_id = token or engine.ids.job_id()
    for other in await store.operations(_LATEST):
        if _is_replay_of(other, webhook.id) and other.id != operation_id:
            raise Conflict(
                f"operation {other.id} replays the webhook {webhook.id}; wait for it, or cancel it"
            )
    # Up to the newest event: a replay causes events itself, and must not go after them.
    end = await store.newest_event() + 1 if before is None else before
    return await store.begin_operation(
        Operation(
            id=operation_id,
            action=OperationAction.REPLAY,
            filter={"webhook": webhook.id, "after": str(after), "before": str(end)},
            by=by,
            options={},
            owner=owner,
            created_at=now,
            updated_at=now,
        )
    )


async def replay_batch(engine: Engine, operation: Operation) -> OperationBatch:
    """Enqueue the messages of the next events. Repeated after a crash it enqueues none twice: their ids are the same."""
    webhook = await find(engine, operation.filter["webhook"])
    if webhook is None or not webhook.is_enabled:
        raise UsageError(f"the webhook is {'removed' if webhook is None else 'disabled'}")
    after, before = int(operation.cursor or operation.filter["after"]), int(operation.filter["before"])
    found = await engine.store.events(after=after, limit=BATCH)
    events = [event for event in found if event.id < before]
    if not events:
        return OperationBatch(0, 0, operation.cursor, is_last=True)
    jobs = await deliveries([webhook], events, JobOwners(engine.store), replay=operation.id)
    await engine.enqueue(jobs)
    return OperationBatch(len(jobs), 0, str(events[-1].id), is_last=len(events) < len(found))


def _is_replay_of(operation: Operation, webhook_id: str) -> bool:
    is_running = operation.action is OperationAction.REPLAY and operation.progress is Progress.RUNNING
    return is_running and operation.filter["webhook"] == webhook_id
