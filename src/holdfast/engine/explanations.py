"""Read the facts that explain why a job waits, and what waits in lanes and queues. `holdfast.diagnosis.explain` decides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.diagnosis.explain import Explanation, explain
from holdfast.diagnosis.wait_reasons import Bound, Facts, Guarded
from holdfast.engine.engine import Engine
from holdfast.engine.lane_store import Cap, DependencyState
from holdfast.engine.tables.dependencies import dependency_states
from holdfast.engine.tables.holds import holds_in_force
from holdfast.errors import UnknownJob
from holdfast.jobs.job import JobId, JobRow, Lane
from holdfast.jobs.lanes import Dependency, Held, HoldIndex
from holdfast.jobs.moves import State
from holdfast.jobs.queue_position import QueuePosition, Use
from holdfast.resilience.breaker import BreakerState
from holdfast.resilience.gates import GateRefusal, GateRequest, first_refusal
from holdfast.resilience.limits import Rate

#: A job may move between two reads; after this many reads it is explained as it was read.
_READS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRow:
    """A lane as all processes see it: what waits in it, what holds it, what limits it."""

    label: str
    queue: str
    task: str
    dependency: str  #: with its shard; "" for none
    fair: bool
    waiting: int  #: due now or later
    held: Held | None  #: the hold that lasts longest
    breaker: BreakerState | None  #: of its dependency
    limit: int | None  #: calls at a time that its dependency bears
    in_flight: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A queue as all processes see it. *held* is the pause of the queue as a whole."""

    name: str
    tasks: tuple[str, ...]
    waiting: int
    workers: int  #: live ones that serve it
    held: Held | None


async def explain_job(engine: Engine, job_id: JobId) -> Explanation:
    """Return why the job is not running, and when it is expected to. Raises `UnknownJob` when there is none."""
    row, queue_position, caps = await _seen(engine, job_id)
    if row.state is not State.QUEUED:
        return explain(Facts(row=row, queue_position=queue_position))
    store, task = engine.store, engine.tasks.get(row.task)
    return explain(
        Facts(
            row=row,
            queue_position=queue_position,
            holds=await holds_in_force(store),
            workers=await store.queries.workers(),
            tasks=engine.tasks or None,
            external=task is not None and task.policy.execute == "external",
            dependency=await _guarded(engine, queue_position.lane),
            bounds=[_bound(cap, queue_position.use) for cap in caps],
            windows=None if task is None else task.policy.retry.windows,
            refusal=_refusal(engine, row, queue_position),
        )
    )


async def _seen(engine: Engine, job_id: JobId) -> tuple[JobRow, QueuePosition, tuple[Cap, ...]]:
    """Return the job's row and queue position as of one moment, where a few reads can find one."""
    for read in range(_READS):
        row = await engine.store.queries.job(job_id)
        if row is None:
            break
        task = engine.tasks.get(row.task)
        limits = None if task is None else task.policy.limits
        caps = engine.admission.caps(Lane(row.queue, row.task), limits)
        queue_position = await engine.store.queries.queue_position(job_id, [cap.scope for cap in caps])
        if queue_position is None:
            break
        if (row.state is State.QUEUED) == (queue_position.place is not None) or read == _READS - 1:
            return row, queue_position, caps
    raise UnknownJob(job_id)


async def _guarded(engine: Engine, lane: Lane) -> Guarded | None:
    dependency = Dependency.of(lane)
    found = [one for one in await dependency_states(engine.store) if one.dependency == dependency]
    if dependency is None or not found:
        return None
    policy, state = engine.admission.dependency(dependency.name).breaker, found[0]
    return Guarded(
        label=dependency.label,
        breaker=state.breaker,
        holds=policy is None or policy.mode == "hold",
        limit=state.limit,
        in_flight=state.in_flight,
        callers=state.callers,
    )


def _refusal(engine: Engine, row: JobRow, queue_position: QueuePosition) -> GateRefusal | None:
    """Return what the gates of plug-ins answer for the job's next attempt."""
    request = GateRequest(
        lane=queue_position.lane,
        now=queue_position.now,
        owner=row.owner,
        key=row.key,
        attempt=row.attempt + 1,
        priority=row.priority,
    )
    return first_refusal(engine.admission.gates, request)


async def lane_rows(engine: Engine, after: str | None, limit: int | None) -> list[LaneRow]:
    """Return up to *limit* lanes that were ever used, by label, from behind the label *after*."""
    store = engine.store
    alike: dict[str, list[Lane]] = defaultdict(list)  # by label: with owners in turn, and without
    for lane in await store.lanes.all():
        alike[lane.label].append(lane)
    page = _page(alike, after, limit)
    holds = HoldIndex(await holds_in_force(store))
    depths = await store.lanes.depths(_lanes_of(page, alike))
    states = {state.dependency: state for state in await dependency_states(store)}
    return [
        _lane_row(
            label,
            sorted(alike[label]),
            sum(depths.get(lane, 0) for lane in alike[label]),
            holds.holding(alike[label][0]),
            states,
        )
        for label in page
    ]


async def queue_rows(engine: Engine, after: str | None, limit: int | None) -> list[QueueRow]:
    """Return up to *limit* queues that were ever used, by name, from behind the name *after*."""
    store = engine.store
    lanes: dict[str, list[Lane]] = defaultdict(list)
    for lane in await store.lanes.all():
        lanes[lane.queue].append(lane)
    page = _page(lanes, after, limit)
    depths, holds = await store.lanes.depths(_lanes_of(page, lanes)), await holds_in_force(store)
    workers = await store.queries.workers()
    paused = {held.scope.name: held for held in holds if held.scope.kind == "queue"}
    return [
        QueueRow(
            name=name,
            tasks=tuple(sorted({lane.task for lane in lanes[name]})),
            waiting=sum(depths.get(lane, 0) for lane in lanes[name]),
            workers=sum(worker.serves(name) for worker in workers),
            held=paused.get(name),
        )
        for name in page
    ]


def _page(names: Iterable[str], after: str | None, limit: int | None) -> list[str]:
    """Return up to *limit* of these names, in order, from behind *after* on."""
    return sorted(name for name in names if after is None or name > after)[:limit]


def _lanes_of(names: Iterable[str], lanes: Mapping[str, list[Lane]]) -> list[Lane]:
    return [lane for name in names for lane in lanes[name]]


def _bound(cap: Cap, use: Mapping[str, Use]) -> Bound:
    rate = None if cap.rate is None else Rate(cap.rate, cap.per)
    return Bound(scope=cap.scope, use=use.get(cap.scope, Use()), concurrency=cap.concurrency, rate=rate)


def _lane_row(
    label: str,
    lanes: list[Lane],
    waiting: int,
    held: Held | None,
    states: Mapping[Dependency, DependencyState],
) -> LaneRow:
    dependency = Dependency.of(lanes[0])
    state = None if dependency is None else states.get(dependency)
    return LaneRow(
        label=label,
        queue=lanes[0].queue,
        task=lanes[0].task,
        dependency="" if dependency is None else dependency.label,
        fair=any(lane.fair for lane in lanes),
        waiting=waiting,
        held=held,
        breaker=None if state is None else state.breaker.state,
        limit=None if state is None else state.limit or None,
        in_flight=None if state is None else state.in_flight,
    )
