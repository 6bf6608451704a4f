"""Every change of a job, as code that runs inside one transaction of the writer (law 1: one guarded write).

A `Move` is one operation: it reads the clock once, allocates event numbers, guards each write by lease or phase,
appends the events and tells the hooks, all before the commit. The bulk of the traffic is handled by one statement
per batch (JSON in, JSON out); whatever a batch statement did not match is looked at one by one.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.domain.job import (
    AllNew,
    Batch,
    Claimed,
    Enqueued,
    JobId,
    Lane,
    Lease,
    NewJob,
    Session,
    Settlement,
)
from holdfast.domain.moves import Kind, State
from holdfast.domain.rules import outcome_of, retry_refusal
from holdfast.domain.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict
from holdfast.engine.ports import Answer, Clock, Hook, Moved, Reclaim, Retention
from holdfast.errors import Conflict, LeaseLost, StoreError, UnknownJob
from holdfast.stores.sqlfiles import load_sql
from holdfast.stores.sqlite.times import micros, moment, span

SQL = load_sql("holdfast.stores.sqlite")
IN_LINE, DEFERRED, PROCESSING, COMPLETE, FAILED, CANCELLED = range(6)
STATES = (State.QUEUED, State.QUEUED, State.PROCESSING, State.COMPLETE, State.FAILED, State.CANCELLED)

#: How long a live worker may be late in stopping an attempt that overran, before the attempt is taken from it.
OVERRUN_MARGIN_US = 5_000_000
#: How many jobs one event row may speak of: the place in the row is part of an event's id.
MOST_PER_EVENT = 1000

_MILLISECOND = timedelta(milliseconds=1)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def to_json(value: Any) -> str:
    return _encode(value).decode()


def failure_json(failure: Failure) -> str:
    return to_json(
        {
            "code": failure.code,
            "message": failure.message,
            "class": failure.error_class.value,
            "detail": failure.detail,
            "fingerprint": failure.fingerprint,
            "gateway_status": failure.gateway_status,
        }
    )


class Move:
    """One operation in one transaction. *lanes* maps lanes to their numbers and is shared by all operations."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: Clock,
        lanes: LaneNumbers,
        hooks: Sequence[tuple[frozenset[Kind], Hook]] = (),
    ) -> None:
        self.connection, self._clock, self._lanes, self._hooks = connection, clock, lanes, hooks
        self.now = micros(clock.now())
        self._seq: int | None = None
        self._told: list[Moved] = []

    @property
    def mono(self) -> int:
        return int(self._clock.monotonic() * 1_000_000)

    def run(self, name: str, **parameters: Any) -> sqlite3.Cursor:
        return self.connection.execute(SQL[name], parameters)

    # -- events -----------------------------------------------------------------------------------------------------
    def next_seq(self) -> int:
        """The number of the next event row: known before it is written, so that jobs can point at it."""
        if self._seq is None:
            [(newest,)] = self.connection.execute("SELECT max(seq) FROM event")
            self._seq = newest or 0
        self._seq += 1
        return self._seq

    def record(
        self,
        seq: int,
        kind: Kind,
        moves: Sequence[tuple[str, int, int, dict[str, Any] | None]],
        job: str | None = None,
    ) -> None:
        """One event row for the same move of many jobs: (uid, epoch, attempt, meta) each."""
        if not moves:
            return
        self.connection.execute(
            "INSERT INTO event (seq, at, kind, job, moves) VALUES (?, ?, ?, ?, ?)",
            (seq, self.now, kind, job, to_json(moves)),
        )
        if any(kind in kinds for kinds, _ in self._hooks):
            self._told += [
                Moved(kind, JobId(uid), epoch, attempt, meta or {}) for uid, epoch, attempt, meta in moves
            ]

    def record_one(self, kind: Kind, uid: str, epoch: int, attempt: int, **meta: Any) -> None:
        self.record(self.next_seq(), kind, [(uid, epoch, attempt, _some(meta))], job=uid)

    def tell_hooks(self) -> None:
        for kinds, hook in self._hooks:
            wanted = [moved for moved in self._told if moved.kind in kinds]
            if wanted:
                _finish(hook(_HookTransaction(self.connection), wanted))

    # -- enqueue ----------------------------------------------------------------------------------------------------
    def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        answers: list[Enqueued] = []
        batches = Batch.split(jobs)
        for batch in batches:
            if batch.spec.dedupe is None:
                for part in batch.parts(MOST_PER_EVENT):
                    self._insert(part)
                if len(batches) == 1:
                    return AllNew(batch.ids)
                answers += AllNew(batch.ids)
            else:
                answers += [self._enqueue_unless_twin(job) for job in batch]
        return answers

    def _insert(self, batch: Batch, *, silent: bool = False) -> None:
        spec = batch.spec
        seq = self.next_seq()
        run_at = micros(spec.run_at) if spec.run_at else self.now + span(spec.delay or timedelta())
        deadline_at = micros(spec.deadline_at) if spec.deadline_at else _plus(self.now, spec.deadline)
        added = self.run(
            "enqueue",
            jobs=to_json(list(zip(batch.ids, batch.payloads, strict=True))),
            lane=self._lanes.number(self.connection, spec.lane),
            phase=IN_LINE if run_at <= self.now else DEFERRED,
            prio=-spec.priority,
            run_at=run_at,
            now=self.now,
            seq=seq,
            max_attempts=spec.max_attempts,
            max_crashes=spec.max_crashes,
            version=spec.version,
            owner=spec.owner,
            key=spec.key,
            tags=to_json(spec.tags) if spec.tags else None,
            trace=spec.trace,
            timeout=_span(spec.timeout),
            sla=_span(spec.deadline),
            start_within=_span(spec.start_within),
            dedupe=spec.dedupe.hex() if spec.dedupe else None,
            dedupe_for=_span(spec.dedupe_for),
            deadline_at=deadline_at,
        ).rowcount
        new: Iterable[str] = batch.ids
        if added < len(
            batch
        ):  # some were stored by an earlier call whose answer was lost: their event is on record
            rows = self.connection.execute(
                "SELECT uid FROM job WHERE queued_event = ? AND created_at = ?", (seq, self.now)
            )
            stored = {uid for (uid,) in rows}
            new = [uid for uid in batch.ids if uid in stored]
        if not silent:
            self.record(seq, Kind.queued, [(uid, 0, 0, None) for uid in new])

    def _enqueue_unless_twin(self, job: NewJob) -> Enqueued:
        assert job.spec.dedupe is not None
        digest = job.spec.dedupe.hex()
        twin = self.run("twin", digest=digest, now=self.now).fetchone()
        if twin is not None:
            return Enqueued(JobId(twin[0]), duplicate=twin[0] != job.id)
        self._insert(Batch([job.id], [job.payload], job.spec))
        self._take_key(digest, self._id_of(job.id))
        return Enqueued(job.id)

    def _take_key(self, digest: str, job: int) -> None:
        self.connection.execute("INSERT OR REPLACE INTO dedupe (digest, job) VALUES (?, ?)", (digest, job))

    def _id_of(self, uid: str) -> int:
        row = self.connection.execute("SELECT id FROM job WHERE uid = ?", (uid,)).fetchone()
        if row is None:
            raise UnknownJob(uid)
        return int(row[0])

    def reject(self, job: NewJob, failure: Failure) -> None:
        if self.connection.execute("SELECT 1 FROM job WHERE uid = ?", (job.id,)).fetchone():
            return
        self._insert(Batch([job.id], [job.payload], job.spec), silent=True)
        number = self._id_of(job.id)
        self.run(
            "bury",
            id=number,
            now=self.now,
            code=failure.code,
            message=failure.message,
            last_failure=None,
            crashes=None,
        )
        self.record_one(Kind.rejected, job.id, 0, 0, error_code=failure.code)

    # -- claim ------------------------------------------------------------------------------------------------------
    def promote(self, limit: int = 1000) -> int | None:
        """Let what is due into line; microseconds until the next one is."""
        self.run("promote", now=self.now, limit=limit)
        [(due,)] = self.connection.execute("SELECT min(run_at) FROM job WHERE phase = 1")
        return None if due is None else int(due - self.now)

    def claim(self, session: Session, lanes: Sequence[Lane], limit: int) -> list[Claimed]:
        live = self.connection.execute(
            "SELECT 1 FROM session WHERE id = ? AND boot = ? AND expires_mono > ?",
            (session.id, self._clock.boot_id(), self.mono),
        ).fetchone()
        if live is None:
            return []
        self.run("promote", now=self.now, limit=1000)
        limit = min(limit, MOST_PER_EVENT)
        ids = self._pick(
            [number for lane in lanes if (number := self._lanes.known(self.connection, lane))], limit
        )
        if not ids:
            return []
        seq, listed = self.next_seq(), to_json(ids)
        self.run("claim", seq=seq, session=session.id, now=self.now, mono=self.mono, ids=listed)
        [(text,)] = self.run("claimed", ids=listed)
        rows = _decode(text)
        self.record(seq, Kind.processing, [(row[0], seq, row[3], {"worker": session.worker}) for row in rows])
        lane_of = self._lanes.by_number(self.connection)
        return [
            Claimed(
                Lease(uid, seq), lane_of[lane], payload, attempt, most, crashes, generation, owner, key,
                _duration(timeout), _duration(deadline_at - self.now) if deadline_at is not None else None,
                timedelta(microseconds=self.now - queued_at), _duration(start_within), version, trace,
            )
            for (uid, lane, payload, attempt, most, crashes, generation, owner, key, timeout, deadline_at, queued_at,
                 start_within, version, trace) in rows
        ]  # fmt: skip

    def _pick(self, lanes: Sequence[int], limit: int) -> list[int]:
        """The first *limit* jobs over all these lines; of one key at most one, and none whose key is busy."""
        picked: list[int] = []
        busy: set[str] = set()
        offset, more = 0, list(lanes)
        while more and len(picked) < limit:
            heads = [
                _decode(self.run("head", lane=lane, limit=limit, offset=offset).fetchone()[0])
                for lane in more
            ]
            wanted = {key for head in heads for _, _, _, key in head if key is not None}
            if wanted:
                busy |= self._busy(wanted - busy)
            for _, _, number, key in heapq.merge(*heads):
                if len(picked) == limit:
                    break
                if key is None or key not in busy:
                    picked.append(number)
                    if key is not None:
                        busy.add(key)
            more = [lane for lane, head in zip(more, heads, strict=True) if wanted and len(head) == limit]
            offset += limit
        return picked

    def _busy(self, keys: Collection[str]) -> set[str]:
        rows = self.connection.execute(
            "SELECT DISTINCT key FROM job WHERE phase = 2 AND key IN (SELECT value FROM json_each(?))",
            (to_json(list(keys)),),
        )
        return {key for (key,) in rows}

    # -- settle -----------------------------------------------------------------------------------------------------
    def settle(self, settlements: Sequence[Settlement]) -> list[Answer]:
        answers: dict[Lease, Answer] = {}
        completed = [s for s in settlements if isinstance(s.verdict, Complete)]
        requeued = [s for s in settlements if isinstance(s.verdict, (RetryAfter, Release))]
        if completed:
            answers |= self._complete(completed)
        if requeued:
            answers |= self._requeue(requeued)
        return [answers[s.lease] if s.lease in answers else self._settle_one(s) for s in settlements]

    def _complete(self, settlements: Sequence[Settlement]) -> dict[Lease, Answer]:
        """All at once; those that are not in the answer were not matched."""
        seq = self.next_seq()
        items = to_json([(*s.lease, s.verdict.result) for s in settlements])  # type: ignore[union-attr]
        matched = self.run("complete", settled=items, now=self.now, seq=seq).rowcount
        return self._recorded(Kind.complete, seq, settlements, matched)

    def _recorded(
        self, kind: Kind, seq: int, settlements: Sequence[Settlement], matched: int
    ) -> dict[Lease, Answer]:
        """Append the event of those settlements that a batch statement matched and marked with *seq*."""
        if not matched:
            return {}
        applied = settlements
        if matched < len(settlements):
            marked = "job j" if kind is Kind.complete else "attempt a JOIN job j ON j.id = a.job"
            epoch = "j.epoch" if kind is Kind.complete else "a.epoch"
            sql = f"SELECT j.uid, {epoch} FROM {marked} WHERE {epoch[0]}.settle_event = ?"
            leases = {Lease(uid, epoch) for uid, epoch in self.connection.execute(sql, (seq,))}
            applied = [s for s in settlements if s.lease in leases]
        if kind is Kind.complete:
            moves: list[tuple[str, int, int, dict[str, Any] | None]] = [
                (*s.lease, s.attempt, {"duration_ms": s.duration // _MILLISECOND}) for s in applied
            ]
        else:
            moves = [(*s.lease, s.attempt, _meta(s)) for s in applied]
        self.record(seq, kind, moves)
        return {s.lease: Answer.APPLIED for s in applied}

    def _requeue(self, settlements: Sequence[Settlement]) -> dict[Lease, Answer]:
        answers: dict[Lease, Answer] = {}
        by_kind: dict[Kind, list[Settlement]] = {}
        for s in settlements:
            by_kind.setdefault(_kind_of(s.verdict), []).append(s)
        for kind, group in by_kind.items():
            seq = self.next_seq()
            items = to_json([self._item(s.lease, s.verdict, outcome_of(s.verdict), None) for s in group])
            matched = self.run(
                "end_attempt", settled=items, now=self.now, seq=seq, any_deadline=False
            ).rowcount
            if matched:
                self.run("requeue", settled=items, now=self.now, any_deadline=False)
                answers |= self._recorded(kind, seq, group, matched)
        return answers

    def _item(self, lease: Lease, verdict: Verdict, outcome: str, crashes: int | None) -> tuple[Any, ...]:
        """One line for `end_attempt` and `requeue`."""
        match verdict:
            case RetryAfter(delay, failure):
                return (
                    *lease,
                    outcome,
                    failure_json(failure),
                    span(delay),
                    0,
                    crashes,
                    self._last_failure(failure),
                )
            case Release(delay):
                return (*lease, outcome, None, span(delay), 1, 0, None)
        raise AssertionError(f"not a way back into line: {verdict}")

    def _last_failure(self, failure: Failure) -> str:
        return to_json({"code": failure.code, "message": failure.message, "at": self.now})

    def _settle_one(self, settlement: Settlement) -> Answer:
        """What no batch statement matched: a burial, a passed deadline, a repeated or a refused write."""
        (uid, epoch), verdict = settlement.lease, settlement.verdict
        row = self.connection.execute(
            "SELECT id, phase, epoch, attempt, deadline_at, settle_event FROM job WHERE uid = ?", (uid,)
        ).fetchone()
        if row is None:
            return Answer.STALE
        number, phase, current, attempt, deadline_at, settled = row
        if phase != PROCESSING or epoch != current:
            if phase == COMPLETE and epoch == current:
                return Answer.REPEATED if settled is not None else Answer.STALE
            return self._refuse(number, uid, epoch, verdict)
        if deadline_at is not None and self.now > deadline_at:
            self._time_out(number, uid, epoch, attempt)
            return self._keep_late(number, uid, epoch, attempt, "timed_out", verdict)
        if isinstance(verdict, Bury):
            self._end(settlement.lease, "failed", verdict.failure)
            self._bury(
                number,
                uid,
                epoch,
                attempt,
                verdict.failure,
                Kind.failed,
                crashes=None,
                duration=settlement.duration,
            )
            return Answer.APPLIED
        raise StoreError(
            f"job {uid} matched its lease one moment and not the next"
        )  # one writer: cannot happen

    def _end(self, lease: Lease, outcome: str, failure: Failure | None) -> None:
        """Write down the attempt that ends, whatever its deadline."""
        items = to_json([(*lease, outcome, failure_json(failure) if failure else None)])
        self.run("end_attempt", settled=items, now=self.now, seq=None, any_deadline=True)

    def _bury(
        self, number: int, uid: str, epoch: int, attempt: int, failure: Failure, kind: Kind, *, crashes: int | None,
        duration: timedelta | None = None,
    ) -> None:  # fmt: skip
        last = (
            None
            if kind is Kind.timed_out
            else to_json(
                {"code": failure.code, "message": failure.message, "at": self.now, "attempt": attempt}
            )
        )
        self.run(
            "bury",
            id=number,
            now=self.now,
            code=failure.code,
            message=failure.message,
            last_failure=last,
            crashes=crashes,
        )
        self.run(
            "dead_letter", id=number, now=self.now, code=failure.code, message=failure.message, detail=failure.detail,
            fingerprint=failure.fingerprint, attempts=attempt,
        )  # fmt: skip
        for name in failure.forget:
            self.connection.execute("DELETE FROM step WHERE job = ? AND name = ?", (number, name))
        self.record_one(
            kind, uid, epoch, attempt, error_code=failure.code, gateway_http_status=failure.gateway_status,
            duration_ms=duration // _MILLISECOND if duration is not None else None,
        )  # fmt: skip

    def _refuse(self, number: int, uid: str, epoch: int, verdict: Verdict) -> Answer:
        """The lease had ended before: the attempt's own record says how, and so what this write is."""
        row = self.connection.execute(
            "SELECT outcome, attempt FROM attempt WHERE job = ? AND epoch = ?", (number, epoch)
        ).fetchone()
        if row is None:
            return Answer.STALE  # this lease was never given out
        outcome, attempt = row
        if outcome in ("timed_out", "cancelled"):
            return self._keep_late(number, uid, epoch, attempt, outcome, verdict)
        if outcome != "reclaimed":
            return Answer.REPEATED
        self.refuse_once(Lease(JobId(uid), epoch))
        return Answer.STALE

    def refuse_once(self, lease: Lease) -> None:
        """Put on record, once, that the holder of a reclaimed lease tried to write."""
        row = self.connection.execute(
            "UPDATE attempt SET refused = 1 WHERE job = (SELECT id FROM job WHERE uid = ?) AND epoch = ?"
            " AND outcome = 'reclaimed' AND NOT refused RETURNING attempt", lease
        ).fetchone()  # fmt: skip
        if row is not None:
            self.record_one(Kind.stale_write, *lease, row[0])

    def _keep_late(
        self, number: int, uid: str, epoch: int, attempt: int, reason: str, verdict: Verdict
    ) -> Answer:
        result = verdict.result if isinstance(verdict, Complete) else None
        added = self.connection.execute(
            "INSERT INTO late_result (job, epoch, at, reason, outcome, result) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (number, epoch, self.now, reason, outcome_of(verdict), result),
        ).rowcount
        if added:
            self.record_one(Kind.late_result, uid, epoch, attempt, outcome=outcome_of(verdict))
        return Answer.LATE

    def complete_in(self, lease: Lease, result: str | None, duration: timedelta) -> None:
        if self._complete([Settlement(lease, Complete(result), duration=duration)]) != {
            lease: Answer.APPLIED
        }:
            raise LeaseLost(*lease)

    def current(self, lease: Lease) -> int:
        """The number of the job that *lease* still holds, or `LeaseLost`."""
        row = self.connection.execute(
            "SELECT id FROM job WHERE uid = ? AND epoch = ? AND phase = 2", (lease.job_id, lease.epoch)
        ).fetchone()
        if row is None:
            raise LeaseLost(*lease)
        return int(row[0])

    def record_step(self, lease: Lease, name: str, result: str) -> None:
        self.connection.execute(
            "INSERT OR REPLACE INTO step (job, name, result, at) VALUES (?, ?, ?, ?)",
            (self.current(lease), name, result, self.now),
        )

    def record_progress(self, lease: Lease, percent: float, message: str) -> None:
        told = to_json({"percent": percent, "message": message})
        self.connection.execute("UPDATE job SET progress = ? WHERE id = ?", (told, self.current(lease)))

    # -- recovering -------------------------------------------------------------------------------------------------
    def expired(self, limit: int) -> list[tuple[Any, ...]]:
        return self.run(
            "expired", boot=self._clock.boot_id(), mono=self.mono, margin=OVERRUN_MARGIN_US, limit=limit
        ).fetchall()

    def reclaim(self, reclaims: Sequence[Reclaim]) -> int:
        """Guarded twice: the lease must still be the current one, and must still have run out."""
        overran_by_lease = {Lease(row[0], row[1]): bool(row[8]) for row in self.expired(-1)}
        done = 0
        for lease, verdict, crashed in reclaims:
            if overran_by_lease.get(lease) is not (not crashed):
                continue
            row = self.connection.execute(
                "SELECT id, attempt FROM job WHERE uid = ?", (lease.job_id,)
            ).fetchone()
            crashes = 1 if crashed else None
            match verdict:
                case RetryAfter(_, failure):
                    items = to_json([self._item(lease, verdict, "reclaimed", crashes)])
                    self.run("end_attempt", settled=items, now=self.now, seq=None, any_deadline=True)
                    self.run("requeue", settled=items, now=self.now, any_deadline=True)
                    self.record_one(Kind.reclaimed, *lease, row[1], error_code=failure.code)
                case Bury(failure):
                    self._end(lease, "reclaimed", failure)
                    self._bury(
                        row[0], lease.job_id, lease.epoch, row[1], failure, Kind.failed, crashes=crashes
                    )
                case _:
                    raise AssertionError(f"a reclaim ends in line or in the grave, not as {verdict}")
            done += 1
        return done

    def time_out(self, limit: int) -> list[JobId]:
        rows = self.connection.execute(
            "SELECT id, uid, epoch, attempt FROM job WHERE deadline_at IS NOT NULL AND phase <= 2 AND deadline_at < ?"
            " ORDER BY deadline_at LIMIT ?", (self.now, limit)
        ).fetchall()  # fmt: skip
        for number, uid, epoch, attempt in rows:
            self._time_out(number, uid, epoch, attempt)
        return [JobId(uid) for _, uid, _, _ in rows]

    def _time_out(self, number: int, uid: str, epoch: int, attempt: int) -> None:
        failure = Failure.of("TIMEOUT")
        self._end(Lease(JobId(uid), epoch), "timed_out", failure)
        self._bury(number, uid, epoch, attempt, failure, Kind.timed_out, crashes=0)

    def purge(self, task: str | None, keep: Retention, limit: int) -> int:
        done = 0
        if keep.results is not None:
            rows = self.run(
                "purge_results", before=self.now - span(keep.results), now=self.now, task=task, limit=limit
            ).fetchall()
            for uid, epoch, attempt in rows:
                self.record_one(Kind.expired, uid, epoch, attempt)
            done += len(rows)
        if keep.jobs is not None:
            rows = self.run(
                "purge_jobs", before=self.now - span(keep.jobs), task=task, limit=limit
            ).fetchall()
            listed = to_json([number for (number,) in rows])
            for table, column in (
                ("attempt", "job"),
                ("step", "job"),
                ("late_result", "job"),
                ("dedupe", "job"),
                ("job", "id"),
            ):
                self.connection.execute(
                    f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))", (listed,)
                )
            done += len(rows)
        if keep.events is not None and task is None:
            done += self.connection.execute(
                "DELETE FROM event WHERE seq IN (SELECT seq FROM event WHERE at <= ? AND seq < (SELECT max(seq) FROM event)"
                " ORDER BY seq LIMIT ?)",
                (self.now - span(keep.events), limit),
            ).rowcount
        return done

    # -- people's moves ---------------------------------------------------------------------------------------------
    def cancel(self, job_id: JobId, by: str, reason: str) -> None:
        number, phase, epoch, attempt, _ = self._look(job_id)
        if phase > PROCESSING:
            raise Conflict(
                f"job {job_id} is {STATES[phase]} already; only a queued or processing job can be cancelled"
            )
        self._end(Lease(job_id, epoch), "cancelled", None)
        self.run("cancel", id=number, now=self.now)
        self.record_one(Kind.cancelled, job_id, epoch, attempt, by=by, reason=reason)

    def _look(self, job_id: JobId) -> tuple[int, int, int, int, str | None]:
        row = self.connection.execute(
            "SELECT id, phase, epoch, attempt, dedupe FROM job WHERE uid = ?", (job_id,)
        ).fetchone()
        if row is None:
            raise UnknownJob(job_id)
        return tuple(row)

    def retry(
        self, job_id: JobId, by: str, kind: Kind, forget: Collection[str] | None, queue: str | None
    ) -> int:
        self.run(
            "promote", now=self.now, limit=1000
        )  # what is due is in line, whether or not a worker has looked
        number, phase, epoch, attempt, digest = self._look(job_id)
        if phase in (FAILED, CANCELLED):
            self._new_generation(number, job_id, digest, queue)
        elif phase == PROCESSING and any(row[0] == job_id for row in self.expired(-1)):
            lost = Failure.of("WORKER_LOST")
            items = to_json([self._item(Lease(job_id, epoch), RetryAfter(timedelta(), lost), "reclaimed", 1)])
            self.run("end_attempt", settled=items, now=self.now, seq=None, any_deadline=True)
            self.run("requeue", settled=items, now=self.now, any_deadline=True)
            self.record_one(Kind.reclaimed, job_id, epoch, attempt, by=by)
            self.connection.execute(
                "UPDATE job SET retry_type = 'MANUAL', manual_retries = manual_retries + 1 WHERE id = ?",
                (number,),
            )
        elif phase == DEFERRED:
            self.run("hasten", id=number, now=self.now)
        else:
            raise Conflict(retry_refusal(job_id, STATES[phase]))
        for name in forget or ():
            self.connection.execute("DELETE FROM step WHERE job = ? AND name = ?", (number, name))
        self.record_one(kind, job_id, epoch, attempt, by=by)
        [(place,)] = self.run("position", id=number)
        return int(place)

    def _new_generation(self, number: int, job_id: JobId, digest: str | None, queue: str | None) -> None:
        if digest is not None:
            twin = self.run("twin", digest=digest, now=self.now).fetchone()
            if twin is not None and twin[0] != job_id:
                raise Conflict(
                    f"job {twin[0]} holds the dedupe key of {job_id}; nothing was changed", twin=twin[0]
                )
            self._take_key(digest, number)
        [(lane,)] = self.connection.execute("SELECT lane FROM job WHERE id = ?", (number,))
        if queue is not None:
            lane = self._lanes.number(
                self.connection, Lane(queue, self._lanes.by_number(self.connection)[lane].task)
            )
        self.connection.execute("DELETE FROM dead_letter WHERE job = ?", (number,))
        self.run("retry", id=number, now=self.now, lane=lane)

    def discard(self, job_id: JobId, by: str, reason: str) -> None:
        number, _, epoch, attempt, _ = self._look(job_id)
        if not self.connection.execute("DELETE FROM dead_letter WHERE job = ?", (number,)).rowcount:
            raise Conflict(f"job {job_id} has no dead letter to discard")
        self.record_one(Kind.discarded, job_id, epoch, attempt, by=by, reason=reason)


class LaneNumbers:
    """Lanes by number, remembered: a lane never changes once it exists."""

    def __init__(self) -> None:
        self._numbers: dict[Lane, int] = {}
        self._lanes: dict[int, Lane] = {}

    def number(self, connection: sqlite3.Connection, lane: Lane) -> int:
        """The number of *lane*, made if need be. Not remembered before it is committed: the insert may be undone."""
        found = self.known(connection, lane)
        if found is None:
            cursor = connection.execute("INSERT INTO lane (queue, task) VALUES (?, ?) RETURNING id", lane)
            found = int(cursor.fetchone()[0])
        return found

    def known(self, connection: sqlite3.Connection, lane: Lane) -> int | None:
        found = self._numbers.get(lane)
        if found is None:
            row = connection.execute("SELECT id FROM lane WHERE queue = ? AND task = ?", lane).fetchone()
            found = int(row[0]) if row else None
        return found

    def by_number(self, connection: sqlite3.Connection) -> dict[int, Lane]:
        [(count,)] = connection.execute("SELECT count(*) FROM lane")
        if count != len(self._lanes):
            self._lanes = {
                number: Lane(queue, task)
                for number, queue, task in connection.execute("SELECT id, queue, task FROM lane")
            }
        return self._lanes

    def remember(self, connection: sqlite3.Connection) -> None:
        """Call on a connection outside of transactions: what it sees is committed."""
        self._numbers = {lane: number for number, lane in self.by_number(connection).items()}


class _HookTransaction:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def execute(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, params).fetchall()


def _finish(hook: Any) -> None:
    """Run a hook to its end: in the writer's thread there is no event loop, and nothing it may wait for."""
    run: Callable[[None], Any] = hook.__await__().send
    try:
        run(None)
    except StopIteration:
        return
    raise StoreError("a hook on SQLite may await only transaction.execute(): it runs inside the commit")


def _kind_of(verdict: Verdict) -> Kind:
    if isinstance(verdict, Release):
        return Kind.snoozed if verdict.snoozed else Kind.released
    return Kind.retry


def _meta(settlement: Settlement) -> dict[str, Any] | None:
    meta: dict[str, Any] = {"duration_ms": settlement.duration // _MILLISECOND}
    match settlement.verdict:
        case RetryAfter(delay, failure):
            meta |= {
                "error_code": failure.code,
                "gateway_http_status": failure.gateway_status,
                "delay_ms": span(delay) // 1000,
            }
        case Release(_, why):
            meta["why"] = why
    return _some(meta)


def _some(meta: dict[str, Any]) -> dict[str, Any] | None:
    return {name: value for name, value in meta.items() if value is not None} or None


def _span(duration: timedelta | None) -> int | None:
    return None if duration is None else span(duration)


def _plus(now: int, duration: timedelta | None) -> int | None:
    return None if duration is None else now + span(duration)


def _duration(microseconds: int | None) -> timedelta | None:
    return None if microseconds is None else timedelta(microseconds=microseconds)


__all__ = ["SQL", "STATES", "LaneNumbers", "Move", "moment"]
