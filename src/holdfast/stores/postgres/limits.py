"""Limits: the caps of claims (concurrency and rate), and charges against rates and quotas.

A capped claim is a transaction of its own: it locks free slots, claims at most that number of jobs, and fills the slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import asyncpg

from holdfast.engine.lane_store import Cap, Charge, QuotaRefusal
from holdfast.engine.quotas import manual_retry_refused
from holdfast.jobs.job import Lease

#: How long meters and counts are kept after their last use.
_KEEP = timedelta(days=62)


# -- caps -----------------------------------------------------------------------------------------------------------------
class Room(NamedTuple):
    """How many jobs the caps of a claim admit, and the slots for them, which are locked until the transaction ends."""

    most: int
    slot_scopes: list[str]
    slot_numbers: list[int]


async def room(connection: asyncpg.Connection[Any], caps: Sequence[Cap], limit: int) -> Room:
    """Return how many jobs may be claimed under *caps*, at most *limit*, and lock their slots.

    Raises:
        LockNotAvailableError: Another claim has locked the slots for too long.
    """
    ordered = sorted(caps)  # so that two claims with the same caps cannot deadlock
    row = await connection.fetchrow(
        "SELECT room, slot_scopes, slot_numbers FROM holdfast.room($1, $2, $3, $4, $5)",
        [cap.scope for cap in ordered],
        [cap.concurrency for cap in ordered],
        [cap.rate for cap in ordered],
        [cap.per for cap in ordered],
        limit,
    )
    assert row is not None
    return Room(*row)


async def occupy(
    connection: asyncpg.Connection[Any], caps: Sequence[Cap], taken: Room, leases: Sequence[Lease]
) -> None:
    """Record that the jobs of *leases* were claimed under *caps*. They fill the slots of *taken*."""
    rated = [cap for cap in caps if cap.rate is not None]
    await connection.execute(
        "SELECT holdfast.occupy($1, $2, $3, $4, $5, $6, $7)",
        taken.slot_scopes,
        taken.slot_numbers,
        [lease.job_id for lease in leases],
        [lease.epoch for lease in leases],
        [cap.scope for cap in rated],
        [cap.rate for cap in rated],
        [cap.per for cap in rated],
    )


# -- charges --------------------------------------------------------------------------------------------------------------
async def charge(
    connection: asyncpg.Connection[Any], groups: Sequence[Sequence[Charge]]
) -> list[QuotaRefusal | None]:
    """Make all charges of each group or none. Return for each group None, or the refusal that lasts longest."""
    charges = [(number, one) for number, group in enumerate(groups) for one in group]
    keys = sorted({(one.scope, one.period) for _, one in charges})
    places = {key: place for place, key in enumerate(keys, 1)}
    longest: dict[tuple[str, str], float] = {}
    for _, one in charges:
        key = one.scope, one.period
        longest[key] = max(longest.get(key, 0.0), one.per.total_seconds())
    measures = [_measure(one) for _, one in charges]
    rows = await connection.fetch(
        "SELECT place, level, wait FROM holdfast.charge($1, $2, $3, $4, $5, $6, $7)",
        [scope for scope, _ in keys],
        [period for _, period in keys],
        [longest[key] for key in keys],
        [number for number, _ in charges],
        [places[one.scope, one.period] for _, one in charges],
        [cost for cost, _ in measures],
        [capacity for _, capacity in measures],
    )
    answers: list[QuotaRefusal | None] = [None] * len(groups)
    for place, level, wait in rows:
        number, one = charges[place - 1]
        used = one.limit if one.period == "rate" else round(level)
        answers[number] = QuotaRefusal(one, used, timedelta(seconds=wait))
    return answers


async def charge_manual_retry(connection: asyncpg.Connection[Any], charges: Sequence[Charge]) -> None:
    """Charge a manual retry. Raise `QuotaExceeded` if a charge is refused."""
    [refusal] = await charge(connection, [charges]) if charges else [None]
    if refusal is not None:
        raise manual_retry_refused(refusal, await connection.fetchval("SELECT holdfast.clock()"))


def _measure(one: Charge) -> tuple[float, float]:
    """Return the cost of a charge and the capacity: seconds of an even flow for a rate, else amounts."""
    if one.period != "rate":
        return one.amount, one.limit
    per = one.per.total_seconds()
    return one.amount * per / one.limit, per


async def forget_unused(connection: asyncpg.Connection[Any]) -> None:
    """Delete counts and meters that were last used more than `_KEEP` ago."""
    for table, moment in (("usage", "begins"), ("meter", "tat")):
        await connection.execute(
            f"DELETE FROM holdfast.{table} WHERE ctid = ANY (ARRAY("
            f"SELECT ctid FROM holdfast.{table} WHERE {moment} < holdfast.clock() - $1::interval FOR UPDATE SKIP LOCKED))",
            _KEEP,
        )
