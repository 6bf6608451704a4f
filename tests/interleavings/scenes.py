"""What two callers may do at the same time, by how the job stands when they begin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import combinations_with_replacement, count
from typing import Any

from holdfast.engine.ports import Reclaim, StuckAttempt
from holdfast.errors import Conflict, StoreUnavailable
from holdfast.jobs.job import JobId, JobSpec, Lane, Lease, NewJob, Session, Settlement
from holdfast.jobs.moves import Kind
from holdfast.jobs.precondition import UNCONDITIONAL, Precondition
from holdfast.jobs.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict
from holdfast.stores.postgres import PostgresStore, sessions
from holdfast.wiring import SystemIds

_ids, _numbers = SystemIds(), count(1)
_BOOM, _LOST, _STUCK = Failure("BOOM", "BOOM happened"), Failure.of("WORKER_LOST"), Failure.of("STUCK")
_SOON, _HOUR = timedelta(milliseconds=1), timedelta(hours=1)
WORDS: dict[str, Verdict] = {
    "complete": Complete("1"),
    "fail": RetryAfter(timedelta(), _BOOM),
    "bury": Bury(_BOOM),
    "release": Release(),
}

#: How the job stands → the verbs that may meet there. Each pair of them is played, each with itself too.
SCENES: dict[str, tuple[str, ...]] = {
    "queued": ("claim", "cancel", "retry"),
    "waiting": ("promote", "retry", "cancel", "claim"),
    "running": ("complete", "fail", "bury", "release", "cancel", "reclaim", "extend"),
    "lost": ("complete", "fail", "reclaim", "retry", "cancel", "claim"),
    "late": ("complete", "time_out", "cancel"),
    "failed": ("retry", "claim", "discard"),
    "unborn": ("enqueue",),
    "running twin": ("enqueue", "complete", "bury", "cancel", "release"),
    "failed twin": ("enqueue", "retry"),
}
#: Scenes in which jobs share a dedupe key: the one on stage, if there is one yet, and those that are enqueued.
TWINS = ("unborn", "running twin", "failed twin")


#: People who act on what they have read, and what others do meanwhile.
AS_READ: list[tuple[str, str, str]] = [
    ("queued", "cancel as read", "claim"),
    ("waiting", "cancel as read", "promote"),
    ("waiting", "cancel as read", "retry"),
    ("running", "cancel as read", "complete"),
    ("failed", "retry as read", "retry"),
    ("failed", "discard as read", "retry"),
]


#: People who have seen an attempt run for too long, and take it from a worker that lives.
STUCK: list[tuple[str, str, str]] = [
    ("running", "retry stuck", other) for other in ("retry stuck", "complete")
]


def pairs() -> list[tuple[str, str, str]]:
    return (AS_READ + STUCK) + [
        (scene, *pair) for scene, verbs in SCENES.items() for pair in combinations_with_replacement(verbs, 2)
    ]


@dataclass
class Stage:
    """Jobs in a lane of their own, and what the callers know of the first one. *digest* is their dedupe key."""

    lane: Lane
    session: Session
    digest: bytes | None
    jobs: list[JobId] = field(default_factory=list)
    lease: Lease | None = None
    read: Precondition = UNCONDITIONAL

    @property
    def job_id(self) -> JobId:
        return self.jobs[0]

    def new_job(self, **spec: Any) -> NewJob:
        spec = {"max_attempts": 2, "dedupe": self.digest, **spec}
        return NewJob(_ids.job_id(), "{}", JobSpec(lane=self.lane, **spec))


async def set_stage(store: PostgresStore, scene: str) -> Stage:
    number = next(_numbers)
    lane, digest = Lane("default", f"task{number}"), b"%032d" % number if scene in TWINS else None
    stage = Stage(lane, await store.open_session("worker", _HOUR), digest)
    if scene == "unborn":
        return stage
    job = stage.new_job(
        delay=_SOON if scene == "waiting" else None, deadline=_SOON if scene == "late" else None
    )
    await store.enqueue([job])
    stage.jobs.append(job.id)
    if scene not in ("queued", "waiting"):
        await _go_on(store, scene, stage)
    row = await store.queries.job(job.id)
    assert row is not None
    begins = {"late": row.deadline_at, "waiting": row.run_at}.get(scene) or row.queued_at
    while await store.now() <= begins:
        pass  # a millisecond: the scene begins when the deadline or the delay has passed
    stage.read = Precondition(versions=frozenset({row.version}))
    return stage


async def _go_on(store: PostgresStore, scene: str, stage: Stage) -> None:
    session, lane = stage.session, stage.lane
    [claimed] = await store.claim(session, [lane], 1)
    stage.lease = claimed.lease
    if scene in ("failed", "failed twin"):
        await store.settle([Settlement(claimed.lease, Bury(_BOOM), claimed.attempt)])
    if scene == "lost":
        await store.close_session(session)


def call(store: PostgresStore, verb: str, stage: Stage, other: Session) -> Awaitable[Any]:
    """What a caller does; its answer says what it was told, and nothing that differs from run to run."""
    return _CALLS.get(verb, _settle)(store, verb, stage, other)


async def _settle(store: PostgresStore, verb: str, stage: Stage, other: Session) -> str:
    assert stage.lease is not None
    while True:
        try:
            [answer] = await store.settle([Settlement(stage.lease, WORDS[verb], 1)])
            return str(answer)
        except StoreUnavailable:  # it moved meanwhile: a worker sends it again
            continue


async def _enqueue(store: PostgresStore, verb: str, stage: Stage, other: Session) -> str:
    job = stage.new_job()
    [answer] = await store.enqueue([job])
    if answer.duplicate:
        return "duplicate"
    stage.jobs.append(job.id)
    return "new"


async def _claim(store: PostgresStore, verb: str, stage: Stage, other: Session) -> str:
    claimed = await store.claim(other, [stage.lane], 1)
    return f"attempt {claimed[0].attempt}" if claimed else "nothing"


async def _extend(store: PostgresStore, verb: str, stage: Stage, other: Session) -> str:
    # By the statement of a heartbeat on this connection: the heartbeat's own one does not stop.
    extended = await store._database.run("maintenance", lambda db: sessions.extend(db, stage.session))
    return "extended" if extended else "refused"


async def _reclaim(store: PostgresStore, verb: str, stage: Stage, other: Session) -> str:
    assert stage.lease is not None
    back = Reclaim(stage.lease, RetryAfter(timedelta(), _LOST), crashed=True)
    return f"reclaimed {await store.reclaim([back])}"


async def _promote(store: PostgresStore, verb: str, stage: Stage, other: Session) -> str:
    await store.promote(10)
    return "promoted"


async def _time_out(store: PostgresStore, verb: str, stage: Stage, other: Session) -> str:
    return f"timed out {len(await store.time_out(10))}"


async def _person(store: PostgresStore, verb: str, stage: Stage, other: Session) -> str:
    terms = stage.read if verb.endswith("as read") else UNCONDITIONAL
    stuck = StuckAttempt(stage.lease, _STUCK) if verb.endswith("stuck") and stage.lease is not None else None
    try:
        match verb.split()[0]:
            case "retry":
                await store.retry(
                    stage.job_id, "ann", kind=Kind.manual_retry, precondition=terms, stuck=stuck
                )
            case "cancel":
                await store.cancel(stage.job_id, "ann", "", precondition=terms)
            case "discard":
                await store.discard(stage.job_id, "ann", "seen", precondition=terms)
    except Conflict:
        return "conflict"
    return verb


async def _lose(store: PostgresStore, verb: str, stage: Stage, other: Session) -> str:
    """A person who loses a race is told so, and nothing has come of it (E33)."""
    return "conflict"


#: Verbs that may be told that they lost.
PERSONS = (
    "retry",
    "cancel",
    "discard",
    "retry as read",
    "cancel as read",
    "discard as read",
    "retry stuck",
)
_CALLS: dict[str, Callable[[PostgresStore, str, Stage, Session], Awaitable[str]]] = {
    "lose": _lose,
    "enqueue": _enqueue,
    "claim": _claim,
    "extend": _extend,
    "reclaim": _reclaim,
    "promote": _promote,
    "time_out": _time_out,
    **dict.fromkeys(PERSONS, _person),
}
