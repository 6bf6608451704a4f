"""Dependencies: the breaker that all workers share, and what each of them reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.domain.breaker import Breaker
from holdfast.domain.job import Session
from holdfast.domain.lanes import Dependency
from holdfast.domain.moves import Kind
from holdfast.engine.lane_store import REPORT_COUNTS_FOR, DependencyReport, DependencyState
from holdfast.stores.encoding import breaker_json, breaker_of
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.times import moment, span

_COUNTS_FOR = span(REPORT_COUNTS_FOR)


def swap_breaker(
    move: Move,
    dependency: Dependency,
    breaker: Breaker,
    holds: bool,
    kind: Kind | None,
    meta: Mapping[str, Any] | None,
) -> bool:
    swapped = move.run(
        "swap_breaker",
        dependency=dependency.name,
        shard=dependency.shard,
        version=breaker.version,
        holding=holds,
        value=breaker_json(breaker),
    ).rowcount
    if swapped and kind is not None:
        move.record_no_job(kind, {"dependency": dependency.label, **(meta or {})})
    return bool(swapped)


def is_news(move: Move, session: Session, reports: Sequence[DependencyReport]) -> bool:
    """Whether any of these says something that is not on record, or was said so long ago that it has to be said again.

    A worker reports every second; while it calls nobody, that costs no write.
    """
    rows = move.connection.execute(
        "SELECT dependency, shard, version, vote, capacity, in_flight, latency, calls, failures FROM holdfast_report"
        " WHERE session = ? AND at BETWEEN ? AND ?",
        (session.id, move.now - _COUNTS_FOR // 2, move.now),
    )
    known = {
        DependencyReport(Dependency(name, shard), version, bool(vote), *rest)
        for name, shard, version, vote, *rest in rows
    }
    return not known.issuperset(reports)


def report(move: Move, session: Session, reports: Sequence[DependencyReport]) -> list[DependencyState]:
    # Those that count no more, of workers that are gone.
    move.connection.execute("DELETE FROM holdfast_report WHERE at < ?", (move.now - 2 * _COUNTS_FOR,))
    for one in reports:
        move.run(
            "report",
            dependency=one.dependency.name,
            shard=one.dependency.shard,
            session=session.id,
            now=move.now,
            version=one.version,
            vote=one.vote,
            capacity=one.limit,
            in_flight=one.in_flight,
            latency=one.latency,
            calls=one.calls,
            failures=one.failures,
        )
    return dependency_states_of(move, reports)


def dependency_states_of(move: Move, reports: Sequence[DependencyReport]) -> list[DependencyState]:
    wanted = {one.dependency for one in reports}
    return [
        state_of_dependency
        for state_of_dependency in dependency_states(move)
        if state_of_dependency.dependency in wanted
    ]


def dependency_states(move: Move) -> list[DependencyState]:
    # Not from the future either: somebody has set the clock back.
    rows = move.run("dependency_states", since=move.now - _COUNTS_FOR, until=move.now + _COUNTS_FOR)
    return [
        DependencyState(
            dependency=Dependency(name, shard),
            breaker=Breaker() if value is None else breaker_of(value),
            votes=int(votes),
            callers=callers,
            limit=int(capacity),
            in_flight=int(in_flight),
            latency=latency,
            calls=int(calls),
            failures=int(failures),
            now=moment(move.now),
        )
        for name, shard, value, callers, votes, capacity, in_flight, latency, calls, failures in rows
    ]
