"""How jobs enter the store and reach a worker: enqueue, reject, promote, claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest

from holdfast.jobs.job import Claimed, Enqueued, JobId, Lane, Lease, NewJob, Session
from holdfast.jobs.moves import Kind, State, allows
from holdfast.jobs.verdict import Failure
from holdfast.resilience.fairness import level_of, place
from holdfast.stores.columns import CLAIMED
from holdfast.stores.memory.tables import Job, Live, Tables


def enqueue(tables: Tables, new: NewJob) -> Enqueued:
    if new.id in tables.jobs:
        return Enqueued(new.id)
    twin = twin_of(tables, new.spec.dedupe)
    if twin is not None:
        return Enqueued(twin.id, duplicate=True)
    job = _add(tables, new, State.QUEUED)
    tables.record(Kind.queued, job)
    return Enqueued(job.id)


def _add(tables: Tables, new: NewJob, state: State) -> Job:
    now, spec = tables.clock.now(), new.spec
    run_at = spec.run_at or now + (spec.delay or timedelta())
    job = Job(
        id=new.id,
        number=next(tables.numbers),
        payload=new.payload,
        spec=spec,
        lane=spec.lane,
        state=state,
        run_at=run_at,
        created_at=now,
        queued_at=now,
        updated_at=now,
        deadline_at=spec.deadline_at or (now + spec.deadline if spec.deadline is not None else None),
        ord=max(now, run_at),
        deferred=run_at > now,
    )
    tables.jobs[job.id] = job
    tables.lanes[spec.lane] = None
    if spec.dedupe and state is State.QUEUED:
        tables.dedupe[spec.dedupe] = job.id
    return job


def twin_of(tables: Tables, digest: bytes | None) -> Job | None:
    """Return the job of which a new one with this dedupe key is a duplicate: unfinished, or complete and not expired."""
    job = tables.jobs.get(tables.dedupe.get(digest, JobId(""))) if digest else None
    if job is None or job.state in (State.FAILED, State.CANCELLED) or job.expired_at is not None:
        return None
    if job.state is State.COMPLETE and job.spec.dedupe_for is not None:
        assert job.finished_at is not None
        return job if tables.clock.now() < job.finished_at + job.spec.dedupe_for else None
    return job


def reject(tables: Tables, new: NewJob, failure: Failure) -> None:
    if new.id not in tables.jobs:
        job = _add(tables, new, State.FAILED)
        job.finished_at, job.error = job.created_at, failure
        tables.record(Kind.rejected, job, error_code=failure.code)


def promote(tables: Tables) -> timedelta | None:
    now = tables.clock.now()
    ready_jobs(tables, now)
    waiting = (j.run_at - now for j in tables.jobs.values() if j.state is State.QUEUED and j.run_at > now)
    return min(waiting, default=None)


def claim(tables: Tables, session: Session, lanes: Sequence[Lane], limit: int) -> list[Claimed]:
    now, wanted = tables.clock.now(), set(lanes)
    due = [job for job in ready_jobs(tables, now) if job.lane in wanted and allows("claim", job.state)]
    running = Counter(job.spec.key for job in tables.jobs.values() if job.live)
    claimed: list[Claimed] = []
    for job in _in_order(tables, due):
        if len(claimed) == limit:
            break
        if job.spec.key is not None and running[job.spec.key] >= job.spec.key_slots:
            continue
        running[job.spec.key] += 1
        claimed.append(claim_now(tables, job, session, now))
    return claimed


def claim_job(tables: Tables, session: Session, job_id: JobId, generation: int) -> Claimed | None:
    job = tables.jobs.get(job_id)
    if job is None or not allows("claim", job.state) or job.generation != generation:
        return None
    job.deferred = False
    return claim_now(tables, job, session, tables.clock.now())


def _in_order(tables: Tables, due: list[Job]) -> Iterator[Job]:
    """Yield jobs in the order of claims: the level whose turn it is, then the others; in a level higher priorities first, and
    fair lanes in turn with the rest."""
    for level in tables.turns.next():
        lines: dict[Lane | None, list[Job]] = {}
        for job in due:
            if level_of(job.spec.priority) == level:
                lines.setdefault(job.lane if job.lane.fair else None, []).append(job)
        for lane, line in lines.items():
            if lane is not None:
                _place(tables, lane, line)
            line.sort(key=lambda job: job.place)
        for round_ in zip_longest(*_by_owner(lines.values())):
            yield from (job for job in round_ if job is not None)


def _by_owner(lines: Iterable[list[Job]]) -> list[list[Job]]:
    """Sort the queues: the first of each owner, then the second of each. So an owner with very many lanes gets one turn too."""
    turns = Counter[str | None]()
    places: list[tuple[int, list[Job]]] = []
    for line in lines:
        owners = {job.spec.owner for job in line}
        places.append((min(turns[owner] for owner in owners), line))
        turns.update(owners)
    return [line for _, line in sorted(places, key=lambda pair: pair[0])]


def _place(tables: Tables, lane: Lane, line: list[Job]) -> None:
    """Give passes to the new jobs of a fair lane."""
    for priority in {job.spec.priority for job in line}:
        jobs = [job for job in line if job.spec.priority == priority]
        new = sorted((job for job in jobs if job.turn is None), key=lambda job: (job.ord, job.number))
        passes = tables.passes[lane, priority]
        head = min((job.turn for job in jobs if job.turn is not None), default=passes.get("", 0))
        owners = [job.spec.owner or "" for job in new]
        for job, turn in zip(new, place(owners, passes, head, tables.weights), strict=True):
            job.turn = passes[job.spec.owner or ""] = turn
            passes[""] = max(passes.get("", 0), turn)


def ready_jobs(tables: Tables, now: datetime) -> list[Job]:
    """Return the jobs that are ready. Deferred jobs that are due become ready here, unless `delayed` or `retries` is paused."""
    paused = tables.paused()
    for job in tables.jobs.values():
        if job.deferred and job.run_at <= now and "delayed" not in paused:
            job.deferred = job.attempt > 0 and "retries" in paused
    return [job for job in tables.jobs.values() if job.state is State.QUEUED and not job.deferred]


def claim_now(tables: Tables, job: Job, session: Session, now: datetime) -> Claimed:
    timeout = job.spec.timeout
    job.state, job.epoch, job.attempt = State.PROCESSING, next(tables.epochs), job.attempt + 1
    job.started_at, job.last_attempt_at, job.updated_at = job.started_at or now, now, now
    began = tables.clock.monotonic()
    until = began + timeout.total_seconds() if timeout is not None else None
    job.live, job.turn = Live(job.epoch, session, now, until, began), None
    tables.record(Kind.processing, job, worker=session.worker)
    return Claimed(
        lease=Lease(job.id, job.epoch),
        lane=job.lane,
        payload=job.payload,
        attempt=job.attempt,
        crashes=job.crashes,
        generation=job.generation,
        key=job.spec.key,
        until_deadline=job.deadline_at - now if job.deadline_at else None,
        waited=now - job.queued_at,
        priority=job.spec.priority,
        **{column.name: column.value(job.spec) for column in CLAIMED},
    )
