"""Limits: the caps of claims (concurrency and rate), and charges against rates and quotas."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.engine.lane_store import Cap, Charge, QuotaRefusal
from holdfast.engine.quotas import manual_retry_refused
from holdfast.stores.encoding import to_json
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.times import micros, moment, span
from holdfast.values.periods import period_begins, period_ends


# -- caps -----------------------------------------------------------------------------------------------------------------
def room(move: Move, caps: Sequence[Cap], limit: int) -> int:
    """Return how many jobs may be claimed under *caps*, at most *limit*."""
    for cap in caps:
        if cap.concurrency is not None:
            limit = min(limit, cap.concurrency - _running(move, cap.scope))
        if cap.rate is not None:
            per = span(cap.per)
            limit = min(limit, (per - _ahead(move, cap.scope, per)) * cap.rate // per)
    return max(limit, 0)


def _running(move: Move, scope: str) -> int:
    """Return how many jobs are processing that were claimed under the cap of *scope*."""
    [(count,)] = move.connection.execute(
        "SELECT count(*) FROM holdfast_slot s JOIN holdfast_job j ON j.id = s.job AND j.epoch = s.epoch AND j.phase = 2"
        " WHERE s.scope = ?",
        (scope,),
    )
    return int(count)


def occupy(move: Move, caps: Sequence[Cap], jobs: Sequence[int], epoch: int) -> None:
    """Record that *jobs* were claimed under *caps*, with this epoch."""
    for cap in caps:
        if cap.concurrency is not None:
            move.connection.execute(
                "DELETE FROM holdfast_slot AS s WHERE scope = ? AND NOT EXISTS"
                " (SELECT 1 FROM holdfast_job j WHERE j.id = s.job AND j.epoch = s.epoch AND j.phase = 2)",
                (cap.scope,),
            )
            move.connection.execute(
                "INSERT OR REPLACE INTO holdfast_slot (scope, job, epoch) SELECT ?, value, ? FROM json_each(?)",
                (cap.scope, epoch, to_json(jobs)),
            )
        if cap.rate is not None:
            _let_through(move, cap.scope, len(jobs), cap.rate, span(cap.per))


# -- meters ---------------------------------------------------------------------------------------------------------------
def _ahead(move: Move, scope: str, per: int) -> int:
    """Return by how many microseconds the jobs of *scope* are ahead of an even flow."""
    row = move.connection.execute("SELECT tat FROM holdfast_meter WHERE scope = ?", (scope,)).fetchone()
    ahead: int = 0 if row is None else row[0] - move.now
    # It is more than *per* only after the clock was set back or the limit was changed. Neither may stop a lane for long.
    return ahead if 0 < ahead <= per else 0


def _let_through(move: Move, scope: str, count: int, rate: int, per: int) -> None:
    """Count *count* more jobs against a rate."""
    tat = move.now + _ahead(move, scope, per) + count * per // rate
    move.connection.execute("INSERT OR REPLACE INTO holdfast_meter (scope, tat) VALUES (?, ?)", (scope, tat))


# -- charges --------------------------------------------------------------------------------------------------------------
def charge(move: Move, groups: Sequence[Sequence[Charge]]) -> list[QuotaRefusal | None]:
    """Make all charges of each group or none. Return for each group None, or the refusal that lasts longest."""
    return [_charge_all(move, group) for group in groups]


def charge_manual_retry(move: Move, charges: Sequence[Charge]) -> None:
    """Charge a manual retry. Raise `QuotaExceeded` if a charge is refused."""
    refusal = _charge_all(move, charges)
    if refusal is not None:
        raise manual_retry_refused(refusal, moment(move.now))


def _charge_all(move: Move, group: Sequence[Charge]) -> QuotaRefusal | None:
    """Make all charges of a group and return None, or make none and return the refusal that lasts longest."""
    refusals = [refusal for one in group if (refusal := _refusal(move, one)) is not None]
    if refusals:
        return max(refusals, key=lambda refusal: refusal.resets_in)
    for one in group:
        if one.period == "rate":
            _let_through(move, one.scope, one.amount, one.limit, span(one.per))
        else:
            move.connection.execute(
                "INSERT OR REPLACE INTO holdfast_usage (scope, period, begins, used) VALUES (?, ?, ?, ?)",
                (one.scope, one.period, _begins(move, one.period), max(_used(move, one) + one.amount, 0)),
            )
    return None


def _refusal(move: Move, one: Charge) -> QuotaRefusal | None:
    """Return why this charge cannot be made now, or None if it can."""
    if one.period == "rate":
        per = span(one.per)
        wait = _ahead(move, one.scope, per) + one.amount * per // one.limit - per
        return QuotaRefusal(one, one.limit, timedelta(microseconds=wait)) if wait > 0 else None
    used = _used(move, one)
    if used + one.amount <= one.limit:
        return None
    now = moment(move.now)
    return QuotaRefusal(one, used, period_ends(one.period, now) - now)


def _used(move: Move, one: Charge) -> int:
    row = move.connection.execute(
        "SELECT used FROM holdfast_usage WHERE scope = ? AND period = ? AND begins = ?",
        (one.scope, one.period, _begins(move, one.period)),
    ).fetchone()
    return 0 if row is None else int(row[0])


def _begins(move: Move, period: str) -> int:
    return micros(period_begins(period, moment(move.now)))
