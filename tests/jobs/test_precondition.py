"""Versions of jobs as texts: what is written is read, and nothing else is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.jobs.moves import State
from holdfast.jobs.precondition import UNCONDITIONAL, Precondition, Version

_NUMBERS = st.integers(0, 2**62)


@given(
    st.sampled_from(State),
    _NUMBERS,
    _NUMBERS,
    _NUMBERS,
    st.integers(0, 230 * 365 * 24 * 3600 * 1_000_000),
)
def test_a_version_is_read_as_it_was_written(
    state: State, generation: int, epoch: int, retries: int, micros: int
) -> None:  # E66
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    version = Version.of(state, generation, epoch, retries, moment)
    assert Version.read(str(version)) == version
    later = Version.of(state, generation, epoch, retries, moment + timedelta(microseconds=1))
    assert later != version


@pytest.mark.parametrize(
    "text",
    ["", "queued", "queued-1-2-3", "queued-1-2-3-4-5", "asleep-1-2-3-4", "queued--1-2-3", "queued-1-2-3-x",
     "queued-1-2-3-٤", "queued-1-2-3-+4", "queued-1-2-3-" + "9" * 5000, "1-2-3-4-queued"],
)  # fmt: skip
def test_what_is_no_version_is_none(text: str) -> None:  # E66
    assert Version.read(text) is None


def test_without_versions_whatever_a_job_is_will_do() -> None:  # E66
    version = Version(State.QUEUED, 1, 0, 0, 1)
    assert UNCONDITIONAL.admits(version)
    assert Precondition(versions=frozenset({version})).admits(version)
    assert not Precondition(versions=frozenset({version})).admits(version._replace(epoch=1))
    assert not Precondition(versions=frozenset()).admits(version)
