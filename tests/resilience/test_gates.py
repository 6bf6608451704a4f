"""Gates: their three answers, and the first that refuses."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.jobs.job import Lane
from holdfast.resilience.gates import (
    Admit,
    Gate,
    GateAnswer,
    GateRefusal,
    GateRequest,
    Hold,
    Reject,
    first_refusal,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ASKING = GateRequest(lane=Lane("q", "t"), now=NOW)
answers: st.SearchStrategy[GateAnswer] = st.one_of(
    st.just(Admit()), st.just(Hold(None, "full")), st.just(Hold(NOW, "closed")), st.just(Reject("spent"))
)


def saying(answer: GateAnswer) -> Gate:
    return lambda asking: answer


@given(st.lists(answers))
def test_the_first_gate_that_does_not_admit_decides(said: list[GateAnswer]) -> None:  # E28
    gates = [(f"gate {place}", saying(answer)) for place, answer in enumerate(said)]
    refusal = first_refusal(gates, ASKING)
    refusing = [(place, answer) for place, answer in enumerate(said) if not isinstance(answer, Admit)]
    if refusing:
        place, answer = refusing[0]
        assert refusal == GateRefusal(f"gate {place}", answer)
    else:
        assert refusal is None


def test_a_gate_behind_one_that_refuses_is_not_asked() -> None:
    def never(asking: GateRequest) -> GateAnswer:
        raise AssertionError("asked")

    assert first_refusal([("one", saying(Reject("no"))), ("two", never)], ASKING) is not None


@pytest.mark.parametrize(
    "make",
    [
        lambda: Hold(None, ""),
        lambda: Hold(None, " "),
        lambda: Hold(datetime(2026, 1, 1), "why"),  # noqa: DTZ001
        lambda: Hold(ANYTHING, "why"),
        lambda: Reject(ANYTHING),
    ],
)
def test_an_answer_explains_itself_and_names_a_moment_that_is_one(make: Any) -> None:  # E28
    with pytest.raises(UsageError):
        make()


ANYTHING: Any = 5
