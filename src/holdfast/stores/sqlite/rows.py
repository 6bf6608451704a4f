"""Reading: rows of SQLite as the values everyone sees. Runs on a reader's connection, never in a transaction."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.domain.codes import ErrorClass
from holdfast.domain.job import (
    Attempt,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    Event,
    JobFilter,
    JobId,
    JobRow,
    LateResult,
)
from holdfast.domain.moves import Kind, State
from holdfast.domain.verdict import Failure
from holdfast.engine.ports import Clock, Page
from holdfast.errors import UsageError
from holdfast.stores.sqlite.times import micros, moment

_decode = msgspec.json.Decoder().decode
EVENTS_PER_ROW = 10_000


def _maybe(value: int | None) -> datetime | None:
    return None if value is None else moment(value)


def _json(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return _decode(text)
    except msgspec.DecodeError:  # a damaged row is shown as it is, not hidden
        return text


class Reader:
    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        connection.row_factory = sqlite3.Row
        self._db, self._clock = connection, clock

    # -- jobs -------------------------------------------------------------------------------------------------------
    def job(self, job_id: JobId) -> JobRow | None:
        row = self._db.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone()
        return self._row(row) if row else None

    def _row(self, row: sqlite3.Row) -> JobRow:
        failure = _json(row["last_failure"])
        if failure:
            failure["at"] = moment(failure["at"])
        expires = row["lease_expires_mono"]
        left = (
            None
            if expires is None
            else timedelta(microseconds=expires) - timedelta(seconds=self._clock.monotonic())
        )
        return JobRow(
            id=row["id"],
            task=row["task"],
            queue=row["queue"],
            owner=row["owner"],
            priority=row["priority"],
            state=State(row["state"]),
            generation=row["generation"],
            epoch=row["epoch"],
            attempt=row["attempt"],
            max_attempts=row["max_attempts"],
            crashes=row["crashes"],
            run_at=moment(row["run_at"]),
            created_at=moment(row["created_at"]),
            queued_at=moment(row["queued_at"]),
            started_at=_maybe(row["started_at"]),
            finished_at=_maybe(row["finished_at"]),
            last_attempt_at=_maybe(row["last_attempt_at"]),
            updated_at=moment(row["updated_at"]),
            deadline_at=_maybe(row["deadline_at"]),
            expired_at=_maybe(row["expired_at"]),
            leased_by=row["leased_by"],
            lease_expires_at=None if left is None else self._clock.now() + left,
            error_code=row["error_code"],
            error_message=row["error_message"],
            last_failure=failure,
            retry_type=row["retry_type"],
            manual_retry_count=row["manual_retry_count"],
            result=_json(row["result"]),
            tags=tuple(_json(row["tags"]) or ()),
            payload=_json(row["payload"]),
            progress=_json(row["progress"]),
            key=row["key"],
        )

    def jobs(self, where: JobFilter, after: str | None, limit: int) -> Page:
        conditions: list[str] = ["true"]
        params: list[Any] = []
        if after is not None:
            if not after.isascii() or not after.isdigit() or len(after) > 18:
                raise UsageError(f"{after!r} is not a cursor; pass the `next` of the page before")
            conditions.append("number < ?")
            params.append(int(after))
        for column, values in (("state", where.states), ("task", where.tasks), ("queue", where.queues)):
            if values:
                conditions.append(f"{column} IN ({', '.join('?' * len(values))})")
                params += [str(value) for value in values]
        if where.owner is not None:
            conditions.append("owner = ?")
            params.append(where.owner)
        if where.tag is not None:
            conditions.append("EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)")
            params.append(where.tag)
        for name, value in where.args.items():
            conditions.append("json_extract(payload, ?) = json_extract(?, '$')")
            params += [f'$."{name}"', msgspec.json.encode(value).decode()]
        rows = self._db.execute(
            f"SELECT * FROM jobs WHERE {' AND '.join(conditions)} ORDER BY number DESC LIMIT ?",
            (*params, limit + 1),
        ).fetchall()
        return Page(
            [self._row(row) for row in rows[:limit]],
            str(rows[limit - 1]["number"]) if len(rows) > limit else None,
        )

    def counts(self) -> dict[str, int]:
        """Each count walks one narrow index."""
        counts: dict[str, int] = {}
        for state, condition in (
            (State.QUEUED, "phase = 0"), (State.QUEUED, "phase = 1"), (State.PROCESSING, "phase = 2"),
            (State.COMPLETE, "phase = 3 AND phase >= 3"), (State.FAILED, "phase = 4 AND phase >= 3"),
            (State.CANCELLED, "phase = 5 AND phase >= 3"),
        ):  # fmt: skip
            [(number,)] = self._db.execute(f"SELECT count(*) FROM job WHERE {condition}")
            counts[str(state)] = counts.get(str(state), 0) + number
        return counts

    # -- events -----------------------------------------------------------------------------------------------------
    def events(self, after: int, limit: int, job_id: JobId | None) -> list[Event]:
        if job_id is not None:
            return self._events_of(job_id, after, limit)
        found: list[Event] = []
        seq = after // EVENTS_PER_ROW
        while len(found) < limit:
            rows = self._db.execute(
                "SELECT seq, at, kind, moves FROM event WHERE seq >= ? ORDER BY seq LIMIT 100", (seq,)
            ).fetchall()
            for row in rows:
                found += [event for event in _unpack(row) if event.id > after]
                if len(found) >= limit:
                    break
            if len(rows) < 100:
                break
            seq = rows[-1]["seq"] + 1
        return found[:limit]

    def _events_of(self, job_id: JobId, after: int, limit: int) -> list[Event]:
        row = self._db.execute(
            "SELECT id, queued_event, epoch, settle_event FROM job WHERE uid = ?", (job_id,)
        ).fetchone()
        seqs: set[int] = set()
        if row is not None:
            seqs |= {seq for seq in (row["queued_event"], row["epoch"], row["settle_event"]) if seq}
            for epoch, settled in self._db.execute(
                "SELECT epoch, settle_event FROM attempt WHERE job = ?", (row["id"],)
            ):
                seqs |= {seq for seq in (epoch, settled) if seq}
        rows = self._db.execute(
            "SELECT seq, at, kind, moves FROM event WHERE seq IN (SELECT value FROM json_each(?)) OR job = ? ORDER BY seq",
            (msgspec.json.encode(list(seqs)).decode(), job_id),
        ).fetchall()
        return [e for row in rows for e in _unpack(row) if e.job_id == job_id and e.id > after][:limit]

    # -- attempts, dead letters -------------------------------------------------------------------------------------
    def attempts(self, job_id: JobId) -> list[Attempt]:
        job = self._db.execute(
            "SELECT j.*, s.worker FROM job j LEFT JOIN session s ON s.id = j.session WHERE uid = ?", (job_id,)
        ).fetchone()
        if job is None:
            return []
        rows = self._db.execute(
            "SELECT a.*, s.worker FROM attempt a LEFT JOIN session s ON s.id = a.session WHERE a.job = ? ORDER BY a.epoch",
            (job["id"],),
        )
        found = [
            Attempt(
                job_id=job_id,
                epoch=row["epoch"],
                generation=row["generation"],
                attempt=row["attempt"],
                worker=row["worker"],
                started_at=moment(row["started_at"]),
                ended_at=moment(row["ended_at"]),
                outcome=row["outcome"],
                failure=_failure(_json(row["failure"])),
            )
            for row in rows
        ]
        if job["phase"] in (2, 3) and job["epoch"]:
            found.append(
                Attempt(
                    job_id=job_id,
                    epoch=job["epoch"],
                    generation=job["generation"],
                    attempt=job["attempt"],
                    worker=job["worker"],
                    started_at=moment(job["claimed_at"]),
                    ended_at=_maybe(job["finished_at"]),
                    outcome="complete" if job["phase"] == 3 else None,
                )
            )
        return found

    def dead_letters(self, where: DeadLetterFilter, after: str | None, limit: int) -> list[DeadLetter]:
        condition, params = _dead_condition(where)
        rows = self._db.execute(
            f"""SELECT j.uid, l.task, l.queue, j.owner, d.*, j.payload
                  FROM dead_letter d JOIN job j ON j.id = d.job JOIN lane l ON l.id = j.lane
                 WHERE {condition} AND j.uid > ? ORDER BY j.uid LIMIT ?""",
            (*params, after or "", limit),
        )
        return [
            DeadLetter(
                id=row["uid"],
                task=row["task"],
                queue=row["queue"],
                owner=row["owner"],
                reason=row["reason"],
                message=row["message"],
                detail=row["detail"],
                fingerprint=row["fingerprint"],
                attempts=row["attempts"],
                at=moment(row["at"]),
                payload=_json(row["payload"]),
            )
            for row in rows
        ]

    def dead_letter_groups(self, where: DeadLetterFilter, limit: int) -> list[DeadLetterGroup]:
        condition, params = _dead_condition(where)
        rows = self._db.execute(
            f"""SELECT d.fingerprint, l.task, d.reason, d.detail, d.message, count(*) AS count, min(d.at) AS first_at,
                       max(d.at) AS last_at, j.uid AS sample
                  FROM dead_letter d JOIN job j ON j.id = d.job JOIN lane l ON l.id = j.lane
                 WHERE {condition} GROUP BY d.fingerprint, l.task, d.reason ORDER BY count(*) DESC LIMIT ?""",
            (*params, limit),
        )
        return [
            DeadLetterGroup(
                fingerprint=row["fingerprint"],
                task=row["task"],
                reason=row["reason"],
                message=row["detail"] or row["message"],
                count=row["count"],
                first_at=moment(row["first_at"]),
                last_at=moment(row["last_at"]),
                sample=row["sample"],
            )
            for row in rows
        ]

    def late_results(self, job_id: JobId) -> list[LateResult]:
        rows = self._db.execute(
            "SELECT r.* FROM late_result r JOIN job j ON j.id = r.job WHERE j.uid = ? ORDER BY r.epoch",
            (job_id,),
        )
        return [
            LateResult(
                job_id=job_id,
                epoch=row["epoch"],
                at=moment(row["at"]),
                reason=row["reason"],
                outcome=row["outcome"],
                result=_json(row["result"]),
            )
            for row in rows
        ]

    def steps(self, job_id: JobId) -> dict[str, str]:
        rows = self._db.execute(
            "SELECT s.name, s.result FROM step s JOIN job j ON j.id = s.job WHERE j.uid = ? ORDER BY s.at",
            (job_id,),
        )
        return {row["name"]: row["result"] for row in rows}

    def unreadable(self) -> list[str]:
        """Rows whose parts disagree: what the CHECK constraints cannot say (E3)."""
        found = []
        for rule, sql in (
            ("is processing without a session", "SELECT uid FROM job WHERE phase = 2 AND (session IS NULL OR claimed_at IS NULL)"),
            ("was finished before it was started", "SELECT uid FROM job WHERE finished_at < started_at"),
            ("was started before it was queued", "SELECT uid FROM job WHERE started_at < queued_at"),
            ("has a dead letter but is not failed", "SELECT uid FROM job JOIN dead_letter ON job = id WHERE phase <> 4"),
            ("shares its key with another running job", "SELECT uid FROM job WHERE phase = 2 AND key IS NOT NULL GROUP BY key HAVING count(*) > 1"),
            ("is complete without the event of it", "SELECT uid FROM job WHERE phase = 3 AND settle_event IS NULL"),
        ):  # fmt: skip
            found += [f"job {row[0]}: {rule}" for row in self._db.execute(sql)]
        return found

    def now(self) -> int:
        return micros(self._clock.now())


def _unpack(row: sqlite3.Row) -> list[Event]:
    return [
        Event(
            id=row["seq"] * EVENTS_PER_ROW + place,
            at=moment(row["at"]),
            kind=Kind(row["kind"]).name,
            job_id=uid,
            epoch=epoch,
            attempt=attempt,
            meta=meta or {},
        )
        for place, (uid, epoch, attempt, meta) in enumerate(_decode(row["moves"]))
    ]


def _failure(told: dict[str, Any] | None) -> Failure | None:
    if told is None:
        return None
    return Failure(
        code=told["code"],
        message=told["message"],
        error_class=ErrorClass(told["class"]),
        detail=told["detail"],
        fingerprint=told["fingerprint"],
        gateway_status=told["gateway_status"],
    )


def _dead_condition(where: DeadLetterFilter) -> tuple[str, list[Any]]:
    conditions: list[str] = ["true"]
    params: list[Any] = []
    for column, values in (
        ("l.task", where.tasks),
        ("l.queue", where.queues),
        ("d.reason", where.reasons),
        ("j.uid", where.ids),
    ):
        if values:
            conditions.append(f"{column} IN ({', '.join('?' * len(values))})")
            params += values
    for column, value in (("d.fingerprint", where.fingerprint), ("j.owner", where.owner)):
        if value is not None:
            conditions.append(f"{column} = ?")
            params.append(value)
    return " AND ".join(conditions), params
