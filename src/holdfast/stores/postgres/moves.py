"""Every change of a job after its enqueue, as statements on one connection (law 1: one guarded write).

The bulk of the traffic is handled by one statement per batch; whatever it did not match is looked at one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

import asyncpg
import msgspec

from holdfast.domain.job import JobId, Lease, Settlement
from holdfast.domain.moves import Kind, State
from holdfast.domain.rules import outcome_of, retry_refusal
from holdfast.domain.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict
from holdfast.engine.ports import Answer, Moved, Reclaim
from holdfast.errors import Conflict, LeaseLost, StoreUnavailable, UnknownJob
from holdfast.stores.postgres.plans import SQL

ANY, PASSED, NOT_PASSED = 0, 1, 2  # how `end` looks at the deadline
FAILED, CANCELLED = 4, 5

#: How long a live worker may be late in stopping an attempt that overran, before the attempt is taken from it.
OVERRUN_MARGIN = timedelta(seconds=5)

_encode = msgspec.json.Encoder().encode


def to_json(value: Any) -> str:
    return _encode(value).decode()


def failure_json(failure: Failure | None) -> str | None:
    if failure is None:
        return None
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


class Moves:
    """One operation on one connection; *told* collects what the hooks are told before the commit."""

    def __init__(self, connection: asyncpg.Connection[Any], *, telling: bool = False) -> None:
        self._db, self._telling = connection, telling
        self.told: list[Moved] = []
        self.freed = False  #: a key became free: `grant` should run

    async def _run(self, name: str, *parameters: Any) -> list[asyncpg.Record]:
        return await self._db.fetch(SQL[name], *parameters)

    # -- settle -----------------------------------------------------------------------------------------------------
    async def settle(self, settlements: Sequence[Settlement]) -> list[Answer]:
        answers: dict[Lease, Answer] = {}
        completed = [s for s in settlements if isinstance(s.verdict, Complete)]
        buried = [s for s in settlements if isinstance(s.verdict, Bury)]
        requeued: dict[Kind, list[Settlement]] = {}
        for s in settlements:
            if isinstance(s.verdict, (RetryAfter, Release)):
                requeued.setdefault(_kind_of(s.verdict), []).append(s)
        if completed:
            answers |= await self._complete(completed)
        for kind, group in requeued.items():
            items = [(s.lease, s.verdict, outcome_of(s.verdict), None, _meta(s)) for s in group]
            answers |= await self._requeue(kind, items, passed_too=False)
        if buried:
            answers |= await self._bury(buried)
        missed = [s for s in settlements if s.lease not in answers]
        for s in missed:
            answers[s.lease] = await self._settle_one(s)
        return [answers[s.lease] for s in settlements]

    async def _complete(self, settlements: Sequence[Settlement]) -> dict[Lease, Answer]:
        rows = await self._run(
            "complete",
            [s.lease.job_id for s in settlements],
            [s.lease.epoch for s in settlements],
            [s.verdict.result for s in settlements],  # type: ignore[union-attr]
            [_milliseconds(s.duration) for s in settlements],
        )
        if len(rows) == len(settlements):
            applied = settlements
        else:
            done = _leases(rows)
            applied = [s for s in settlements if s.lease in done]
        self.freed |= any(row[2] is not None for row in rows)
        if self._telling:
            self.told += [
                Moved(
                    Kind.complete,
                    s.lease.job_id,
                    s.lease.epoch,
                    s.attempt,
                    {"duration_ms": _milliseconds(s.duration)},
                )
                for s in applied
            ]
        return {s.lease: Answer.APPLIED for s in applied}

    async def _requeue(
        self,
        kind: Kind,
        items: Sequence[tuple[Lease, Verdict, str, int | None, dict[str, Any]]],
        *,
        passed_too: bool,
    ) -> dict[Lease, Answer]:
        """(lease, verdict, outcome, crashes to add, meta) each."""
        columns = [_way_back(verdict, crashes) for _, verdict, _, crashes, _ in items]
        rows = await self._run(
            "requeue",
            [lease.job_id for lease, *_ in items],
            [lease.epoch for lease, *_ in items],
            [delay for delay, _, _, _ in columns],
            [outcome for _, _, outcome, _, _ in items],
            [failure for _, failure, _, _ in columns],
            [back for _, _, back, _ in columns],
            [crashed for _, _, _, crashed in columns],
            [to_json(meta) for *_, meta in items],
            int(kind),
            passed_too,
        )
        self.freed |= any(row[2] is not None for row in rows)
        done = _leases(rows)
        applied = [(lease, meta) for lease, _, _, _, meta in items if lease in done]
        if self._telling:
            self.told += [Moved(kind, lease.job_id, lease.epoch, 0, meta) for lease, meta in applied]
        return {lease: Answer.APPLIED for lease, _ in applied}

    async def _bury(self, settlements: Sequence[Settlement]) -> dict[Lease, Answer]:
        items = [(s.lease.job_id, s.verdict.failure, _meta(s)) for s in settlements]  # type: ignore[union-attr]
        ended = await self._end(
            items, FAILED, Kind.failed, "failed", NOT_PASSED, epochs=[s.lease.epoch for s in settlements]
        )
        for s in settlements:
            if s.lease in ended and s.verdict.failure.forget:  # type: ignore[union-attr]
                await self._forget(s.lease.job_id, s.verdict.failure.forget)  # type: ignore[union-attr]
        return {s.lease: Answer.APPLIED for s in settlements if s.lease in ended}

    async def _forget(self, job_id: JobId, names: Collection[str]) -> None:
        await self._db.execute(
            "DELETE FROM holdfast.step WHERE job_id = $1 AND name = ANY ($2)", job_id, list(names)
        )

    async def _end(
        self,
        items: Sequence[tuple[JobId, Failure | None, dict[str, Any]]],
        state: int,
        kind: Kind,
        outcome: str,
        deadline: int,
        *,
        epochs: Sequence[int] | None,
        crashes: int | None = None,
    ) -> set[Lease]:
        """End jobs wherever they are (or, with *epochs*, only under these leases); those that were ended."""
        failures = [failure for _, failure, _ in items]
        rows = await self._run(
            "end",
            [job_id for job_id, _, _ in items],
            epochs,
            state,
            int(kind),
            outcome,
            deadline,
            crashes,
            [f.code if f else None for f in failures],
            [f.message if f else None for f in failures],
            [f.detail if f else None for f in failures],
            [f.fingerprint if f else None for f in failures],
            [failure_json(f) for f in failures],
            [to_json(meta) for _, _, meta in items],
        )
        self.freed |= any(row[3] is not None for row in rows)
        metas = {job_id: meta for job_id, _, meta in items}
        ended = [(JobId(str(row[0])), row[1], row[2]) for row in rows]
        self.told += [Moved(kind, job_id, epoch, attempt, metas[job_id]) for job_id, epoch, attempt in ended]
        return {Lease(job_id, epoch) for job_id, epoch, _ in ended}

    async def _settle_one(self, settlement: Settlement) -> Answer:
        """What no batch statement matched: a passed deadline, a repeated or a refused write."""
        (job_id, epoch), verdict = settlement.lease, settlement.verdict
        if await self._db.fetchval(
            "SELECT 1 FROM holdfast.lease WHERE job_id = $1 AND epoch = $2", job_id, epoch
        ):
            timed_out = [(job_id, Failure.of("TIMEOUT"), {"error_code": "TIMEOUT"})]
            ended = await self._end(
                timed_out, FAILED, Kind.timed_out, "timed_out", PASSED, epochs=[epoch], crashes=0
            )
            if not ended:
                raise StoreUnavailable(
                    f"job {job_id} moved while it was being settled; the settlement is sent again"
                )
        if await self._db.fetchval(
            "SELECT 1 FROM holdfast.done WHERE job_id = $1 AND epoch = $2 AND state = 3", job_id, epoch
        ):
            return Answer.REPEATED
        row = await self._db.fetchrow(
            "SELECT outcome, attempt FROM holdfast.attempt WHERE job_id = $1 AND epoch = $2",
            job_id,
            epoch,
        )
        if row is None:
            return Answer.STALE  # this lease was never given out
        if row["outcome"] in ("timed_out", "cancelled"):
            return await self._keep_late(settlement.lease, row["attempt"], row["outcome"], verdict)
        if row["outcome"] != "reclaimed":
            return Answer.REPEATED
        await self.refuse_once(settlement.lease)
        return Answer.STALE

    async def refuse_once(self, lease: Lease) -> None:
        """Put on record, once, that the holder of a reclaimed lease tried to write."""
        attempt = await self._db.fetchval(
            "UPDATE holdfast.attempt SET refused = true WHERE job_id = $1 AND epoch = $2 AND outcome = 'reclaimed' AND NOT refused"
            " RETURNING attempt", *lease,
        )  # fmt: skip
        if attempt is not None:
            await self._record_one(Kind.stale_write, *lease, attempt, {})

    async def _keep_late(self, lease: Lease, attempt: int, reason: str, verdict: Verdict) -> Answer:
        outcome = outcome_of(verdict)
        added = await self._db.fetchval(
            "INSERT INTO holdfast.late_result (job_id, epoch, at, reason, outcome, result)"
            " VALUES ($1, $2, holdfast.clock(), $3, $4, $5) ON CONFLICT DO NOTHING RETURNING epoch",
            *lease, reason, outcome, verdict.result if isinstance(verdict, Complete) else None,
        )  # fmt: skip
        if added is not None:
            await self._record_one(Kind.late_result, lease.job_id, lease.epoch, attempt, {"outcome": outcome})
        return Answer.LATE

    async def _record_one(
        self, kind: Kind, job_id: JobId, epoch: int, attempt: int, meta: dict[str, Any]
    ) -> None:
        await self._db.execute(
            "INSERT INTO holdfast.event (seq, at, kind, job_ids, epochs, attempts, metas, job_id)"
            " VALUES (holdfast.event_number(), holdfast.clock(), $1, ARRAY[$2::uuid], ARRAY[$3::bigint], ARRAY[$4::smallint],"
            " ARRAY[$5::jsonb], $2)",
            int(kind), job_id, epoch, attempt, to_json(meta),
        )  # fmt: skip
        self.told.append(Moved(kind, job_id, epoch, attempt, meta))

    async def complete_in(self, lease: Lease, result: str | None, duration: timedelta) -> None:
        if not await self._complete([Settlement(lease, Complete(result), duration=duration)]):
            raise LeaseLost(*lease)

    # -- recovering -------------------------------------------------------------------------------------------------
    async def expired(self, limit: int, only: Sequence[JobId] | None = None) -> list[asyncpg.Record]:
        return await self._run("expired", limit, OVERRUN_MARGIN, only)

    async def reclaim(self, reclaims: Sequence[Reclaim]) -> int:
        """Guarded twice: the lease must still be the current one, and must still have run out."""
        ids = [r.lease.job_id for r in reclaims]
        await self._db.execute(
            "SELECT 1 FROM holdfast.lease WHERE job_id = ANY ($1::uuid[]) ORDER BY job_id FOR UPDATE", ids
        )
        overran = {Lease(JobId(str(row[0])), row[1]): row[8] for row in await self.expired(len(ids), ids)}
        due = [r for r in reclaims if overran.get(r.lease) is (not r.crashed)]
        back = [
            (
                r.lease,
                r.verdict,
                "reclaimed",
                1 if r.crashed else None,
                {"error_code": r.verdict.failure.code},
            )
            for r in due
            if isinstance(r.verdict, RetryAfter)
        ]
        done = len(await self._requeue(Kind.reclaimed, back, passed_too=True)) if back else 0
        for r in due:
            if isinstance(r.verdict, Bury):
                failure, crashes = r.verdict.failure, 1 if r.crashed else None
                item = (r.lease.job_id, failure, {"error_code": failure.code})
                done += len(
                    await self._end(
                        [item], FAILED, Kind.failed, "reclaimed", ANY, epochs=[r.lease.epoch], crashes=crashes
                    )
                )
        return done

    async def time_out(self, limit: int) -> list[JobId]:
        ids = [JobId(str(row[0])) for row in await self._run("overdue", limit)]
        if not ids:
            return []
        failure = Failure.of("TIMEOUT")
        items = [(job_id, failure, {"error_code": failure.code}) for job_id in ids]
        ended = await self._end(items, FAILED, Kind.timed_out, "timed_out", PASSED, epochs=None, crashes=0)
        return [job_id for job_id, _ in ended]

    # -- people's moves ---------------------------------------------------------------------------------------------
    async def _state(self, job_id: JobId) -> State:
        state = await self._db.fetchval("SELECT state FROM holdfast.jobs WHERE id = $1", job_id)
        if state is None:
            raise UnknownJob(job_id)
        return State(state)

    async def cancel(self, job_id: JobId, by: str, reason: str) -> None:
        # A claim may move the job from line to lease between our look and our hand: then look again.
        for _ in range(20):
            item = (job_id, None, _some({"by": by, "reason": reason}))
            if await self._end([item], CANCELLED, Kind.cancelled, "cancelled", ANY, epochs=None, crashes=0):
                return
            state = await self._state(job_id)
            if state not in (State.QUEUED, State.PROCESSING):
                raise Conflict(
                    f"job {job_id} is {state} already; only a queued or processing job can be cancelled"
                )
        raise Conflict(f"job {job_id} moves too fast to be cancelled; try again")

    async def retry(
        self, job_id: JobId, by: str, kind: Kind, forget: Collection[str] | None, lane: int | None
    ) -> int:
        meta = to_json({"by": by})
        await self._take_key(job_id)
        ended = await self._run("retry", job_id, int(kind), meta, lane)
        if ended:
            self.told.append(Moved(kind, job_id, ended[0][0], 0, {"by": by}))
        elif not await self._hasten(job_id, by, kind, meta):
            state = await self._state(job_id)
            raise Conflict(retry_refusal(job_id, state))
        if forget:
            await self._forget(job_id, forget)
        await self._run("grant")
        return int(await self._db.fetchval(SQL["position"], job_id))

    async def _take_key(self, job_id: JobId) -> None:
        """The dedupe key is taken again, or its holder is named. Only for a job that a retry would bring back."""
        digest = await self._db.fetchval(
            "SELECT j.dedupe FROM holdfast.job j JOIN holdfast.done f ON f.job_id = j.id WHERE j.id = $1 AND f.state IN (4, 5)",
            job_id,
        )
        if digest is None:
            return
        await self._db.execute("SELECT 1 FROM holdfast.dedupe WHERE digest = $1 FOR UPDATE", digest)
        twin = await self._db.fetchval(SQL["twin"], digest)
        if twin is not None and str(twin) != job_id:
            raise Conflict(
                f"job {twin} holds the dedupe key of {job_id}; nothing was changed", twin=str(twin)
            )
        await self._db.execute(
            "INSERT INTO holdfast.dedupe (digest, job_id) VALUES ($1, $2)"
            " ON CONFLICT (digest) DO UPDATE SET job_id = excluded.job_id", digest, job_id,
        )  # fmt: skip

    async def _hasten(self, job_id: JobId, by: str, kind: Kind, meta: str) -> bool:
        """Waiting or stuck → due now, in the same generation."""
        stuck = await self.expired(1, [job_id])
        if stuck:
            lease = Lease(job_id, stuck[0]["epoch"])
            lost = RetryAfter(
                timedelta(hours=1), Failure.of("WORKER_LOST")
            )  # deferred for a moment: hastened just below
            await self._requeue(Kind.reclaimed, [(lease, lost, "reclaimed", 1, {"by": by})], passed_too=True)
        rows = await self._run("hasten", job_id, int(kind), meta)
        if rows:
            self.told.append(Moved(kind, job_id, 0, rows[0][0], {"by": by}))
        return bool(rows)

    async def discard(self, job_id: JobId, by: str, reason: str) -> None:
        gone = await self._db.fetchval(
            "DELETE FROM holdfast.dead_letter WHERE job_id = $1 RETURNING attempts", job_id
        )
        if gone is None:
            await self._state(job_id)
            raise Conflict(f"job {job_id} has no dead letter to discard")
        await self._record_one(Kind.discarded, job_id, 0, gone, _some({"by": by, "reason": reason}))


def _leases(rows: Sequence[asyncpg.Record]) -> set[Lease]:
    return {Lease(JobId(str(row[0])), row[1]) for row in rows}


def _way_back(verdict: Verdict, crashes: int | None) -> tuple[timedelta, str | None, int, int | None]:
    """(delay, failure, attempts given back, crashes to add) of a verdict that puts the job back into line."""
    match verdict:
        case RetryAfter(delay, failure):
            return delay, failure_json(failure), 0, crashes
        case Release(delay):
            return delay, None, 1, 0
    raise AssertionError(f"not a way back into line: {verdict}")


def _kind_of(verdict: RetryAfter | Release) -> Kind:
    if isinstance(verdict, Release):
        return Kind.snoozed if verdict.snoozed else Kind.released
    return Kind.retry


def _meta(settlement: Settlement) -> dict[str, Any]:
    meta: dict[str, Any] = {"duration_ms": _milliseconds(settlement.duration)}
    match settlement.verdict:
        case RetryAfter(delay, failure):
            meta |= {
                "error_code": failure.code,
                "gateway_http_status": failure.gateway_status,
                "delay_ms": _milliseconds(delay),
            }
        case Bury(failure):
            meta |= {"error_code": failure.code, "gateway_http_status": failure.gateway_status}
        case Release(_, why):
            meta["why"] = why
    return _some(meta)


def _some(meta: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in meta.items() if value not in (None, "")}


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
