"""What a hold covers, and which of several keeps a lane."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.jobs.job import Lane
from holdfast.jobs.lanes import Cause, Dependency, Held, HoldIndex, Scope, ScopeKind, holding

NOW = datetime(2026, 3, 1, tzinfo=UTC)
KINDS = (ScopeKind.QUEUE, ScopeKind.TASK, ScopeKind.LANE, ScopeKind.DEPENDENCY)

words = st.sampled_from(["mail", "send", "gateway", "eu"])
lanes = st.builds(
    lambda queue, task, dependency, shard: Lane(queue, task, dependency, shard if dependency else ""),
    words,
    words,
    words | st.just(""),
    words | st.just(""),
)
moments = st.none() | st.integers(0, 5).map(lambda minutes: NOW + timedelta(minutes=minutes))


def names(lane: Lane) -> dict[ScopeKind, set[str]]:
    """Every name that people could call a part of the world by in which this lane lies."""
    dependency = Dependency.of(lane)
    return {
        ScopeKind.QUEUE: {lane.queue},
        ScopeKind.TASK: {lane.task},
        ScopeKind.LANE: {lane.label},
        ScopeKind.DEPENDENCY: set() if dependency is None else {dependency.name, dependency.label},
    }


@st.composite
def holds(draw: st.DrawFn) -> Held:
    kind, lane = draw(st.sampled_from(list(ScopeKind))), draw(lanes)
    name = draw(st.sampled_from(sorted(names(lane).get(kind) or {"mail"})))
    until = draw(moments)
    return Held(scope=Scope(kind, name), cause=Cause.PAUSE, until=until, reason="", by="ann", at=NOW)


@given(lanes, lanes, st.sampled_from(KINDS))
def test_a_scope_covers_the_lanes_in_it_and_no_other(one: Lane, other: Lane, kind: ScopeKind) -> None:  # E27
    for name in names(one)[kind]:
        scope = Scope(kind, name)
        assert scope.covers(one)
        assert scope.covers(other) == (name in names(other)[kind])
        assert scope.covers(one._replace(fair=True))


@given(lanes, words, st.sampled_from([ScopeKind.SCHEDULE, ScopeKind.MAINTENANCE]))
def test_what_is_no_line_covers_none(lane: Lane, name: str, kind: ScopeKind) -> None:  # E27
    assert not Scope(kind, name).covers(lane)


@given(st.lists(holds(), max_size=6), lanes)
def test_the_hold_that_lasts_longest_keeps_a_lane(found: list[Held], lane: Lane) -> None:  # E27 E28
    kept = holding(found, lane)
    covering = [held for held in found if held.scope.covers(lane)]
    assert (kept is None) == (not covering)
    if kept is not None:
        assert kept in covering
        for held in covering:
            assert kept.until is None or (held.until is not None and held.until <= kept.until)


@given(st.lists(holds(), max_size=8), lanes)
def test_an_index_of_holds_finds_the_same(found: list[Held], lane: Lane) -> None:  # E27
    by_all, by_index = holding(found, lane), HoldIndex(found).holding(lane)
    assert (by_all is None) == (by_index is None)
    if by_all is not None and by_index is not None:
        assert by_all.until == by_index.until
