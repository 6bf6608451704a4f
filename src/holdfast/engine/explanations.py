"""Why a job waits, and how lanes and queues stand. Mixed into the engine: it gathers, `holdfast.domain.explain` decides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.domain.breaker import BreakerState
from holdfast.domain.explain import Explanation, explain
from holdfast.domain.gates import GateRefusal, GateRequest, first_refusal
from holdfast.domain.job import JobId, JobRow, Lane, named
from holdfast.domain.lanes import Dependency, Held, HoldIndex
from holdfast.domain.limits import Rate
from holdfast.domain.moves import State
from holdfast.domain.queue_position import QueuePosition, Use
from holdfast.domain.wait_reasons import Bound, Facts, Guarded
from holdfast.engine.admission import Admission
from holdfast.engine.lane_store import Cap, DependencyState
from holdfast.engine.ports import Store
from holdfast.engine.tasks import Task
from holdfast.errors import UnknownJob

#: A job may move between two reads; after this many reads it is explained as it was read.
LOOKS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRow:
    """A lane as everyone sees it: what waits in it, what holds it, what limits it."""

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
    """A queue as everyone sees it. *held* is the pause of the queue as a whole."""

    name: str
    tasks: tuple[str, ...]
    waiting: int
    workers: int  #: live ones that serve it
    held: Held | None


class Explanations:
    store: Store
    admission: Admission
    tasks: dict[str, Task[Any, Any]]

    async def explain(self, job_id: str) -> Explanation:
        """Why it is not running, and when it is expected to. `UnknownJob` when there is none."""
        row, queue_position, caps = await self._seen(named(job_id))
        if row.state is not State.QUEUED:
            return explain(Facts(row=row, queue_position=queue_position))
        task = self.tasks.get(row.task)
        return explain(
            Facts(
                row=row,
                queue_position=queue_position,
                holds=await self.store.holds(),
                workers=await self.store.workers(),
                tasks=self.tasks or None,
                external=task is not None and task.policy.execute == "external",
                dependency=await self._guarded(queue_position.lane),
                bounds=[_bound(cap, queue_position.use) for cap in caps],
                windows=None if task is None else task.policy.retry.windows,
                refusal=self._refusal(row, queue_position),
            )
        )

    async def _seen(self, job_id: JobId) -> tuple[JobRow, QueuePosition, tuple[Cap, ...]]:
        """Its row and where it stands, of one and the same moment if that can be had."""
        for look in range(LOOKS):
            row = await self.store.job(job_id)
            if row is None:
                break
            task = self.tasks.get(row.task)
            caps = self.admission.caps(
                Lane(row.queue, row.task), None if task is None else task.policy.limits
            )
            queue_position = await self.store.queue_position(job_id, [cap.scope for cap in caps])
            if queue_position is None:
                break
            if (row.state is State.QUEUED) == (queue_position.place is not None) or look == LOOKS - 1:
                return row, queue_position, caps
        raise UnknownJob(job_id)

    async def _guarded(self, lane: Lane) -> Guarded | None:
        dependency = Dependency.of(lane)
        found = [one for one in await self.store.dependency_states() if one.dependency == dependency]
        if dependency is None or not found:
            return None
        policy, state_of_dependency = self.admission.dependency(dependency.name).breaker, found[0]
        return Guarded(
            label=dependency.label,
            breaker=state_of_dependency.breaker,
            holds=policy is None or policy.mode == "hold",
            limit=state_of_dependency.limit,
            in_flight=state_of_dependency.in_flight,
            callers=state_of_dependency.callers,
        )

    def _refusal(self, row: JobRow, queue_position: QueuePosition) -> GateRefusal | None:
        """What the gates of plug-ins would say of its next attempt."""
        asking = GateRequest(
            lane=queue_position.lane,
            now=queue_position.now,
            owner=row.owner,
            key=row.key,
            attempt=row.attempt + 1,
            priority=row.priority,
        )
        return first_refusal(self.admission.gates, asking)

    # -- lanes and queues -------------------------------------------------------------------------------------------
    async def lanes(self, *, after: str | None = None, limit: int | None = None) -> list[LaneRow]:
        """Lanes that were ever used, by their labels: those behind the label *after*, up to *limit*."""
        alike: dict[str, list[Lane]] = defaultdict(list)  # of one label: with owners in turn, and without
        for lane in await self.store.lanes():
            alike[lane.label].append(lane)
        page = _page(alike, after, limit)
        holds = HoldIndex(await self.store.holds())
        depths = await self.store.depths(_lanes_of(page, alike))
        dependency_states = {
            state_of_dependency.dependency: state_of_dependency
            for state_of_dependency in await self.store.dependency_states()
        }
        return [
            _lane_row(
                label,
                sorted(alike[label]),
                sum(depths.get(lane, 0) for lane in alike[label]),
                holds.holding(alike[label][0]),
                dependency_states,
            )
            for label in page
        ]

    async def queues(self, *, after: str | None = None, limit: int | None = None) -> list[QueueRow]:
        """Queues that were ever used, by their names: those behind the name *after*, up to *limit*."""
        lanes: dict[str, list[Lane]] = defaultdict(list)
        for lane in await self.store.lanes():
            lanes[lane.queue].append(lane)
        page = _page(lanes, after, limit)
        depths, holds, workers = (
            await self.store.depths(_lanes_of(page, lanes)),
            await self.store.holds(),
            await self.store.workers(),
        )
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
    dependency_states: Mapping[Dependency, DependencyState],
) -> LaneRow:
    dependency = Dependency.of(lanes[0])
    state_of_dependency = None if dependency is None else dependency_states.get(dependency)
    return LaneRow(
        label=label,
        queue=lanes[0].queue,
        task=lanes[0].task,
        dependency="" if dependency is None else dependency.label,
        fair=any(lane.fair for lane in lanes),
        waiting=waiting,
        held=held,
        breaker=None if state_of_dependency is None else state_of_dependency.breaker.state,
        limit=None if state_of_dependency is None else state_of_dependency.limit or None,
        in_flight=None if state_of_dependency is None else state_of_dependency.in_flight,
    )
