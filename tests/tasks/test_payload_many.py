"""Payloads of many calls: the same texts, and the same refusals, as one by one."""

from decimal import Decimal

import msgspec
import pytest

from holdfast.errors import PayloadError, UsageError
from holdfast.tasks.payload import Signature

LIMIT = 1000


def note(text: object, times: int | None = None) -> None: ...


SIGNATURE = Signature(note, "note")


def one_by_one(calls: list[tuple[object, ...]]) -> list[str]:
    return [SIGNATURE.dump(SIGNATURE.bind(call, {}), LIMIT) for call in calls]


def test_many_calls_are_put_into_the_same_words_as_each_alone() -> None:
    calls: list[tuple[object, ...]] = [("a\nb", 1), ("é\u2028", None), ([1, 2], 2), ("null", 3)] * 700
    assert SIGNATURE.dump_many(calls, LIMIT) == one_by_one(calls)


def test_ready_made_json_with_a_line_break_stays_one_payload() -> None:
    raw = msgspec.Raw(b'{"a":\n1}')
    assert SIGNATURE.dump_many([(raw, 1), ("b", 2)], LIMIT) == one_by_one([(raw, 1), ("b", 2)])


@pytest.mark.parametrize("bad", [float("nan"), object(), "x" * LIMIT])
def test_one_call_that_cannot_be_stored_is_refused_among_a_thousand(bad: object) -> None:
    with pytest.raises(PayloadError):
        SIGNATURE.dump_many([("fine", 1)] * 999 + [(bad, 1)], LIMIT)


def test_one_call_that_does_not_fit_the_signature_is_refused_among_a_thousand() -> None:
    with pytest.raises(PayloadError, match="do not fit"):
        SIGNATURE.dump_many([("fine", 1)] * 999 + [("fine", "often")], LIMIT)
    with pytest.raises(UsageError, match="takes 2"):
        SIGNATURE.dump_many([("fine", 1)] * 999 + [("fine", 1, 2)], LIMIT)


def test_one_call_that_would_change_is_found_among_many() -> None:  # E47
    def keep(what, why=None): ...  # type: ignore[no-untyped-def]

    signature = Signature(keep, "keep")
    good = [{"what": {"a": [1]}}, ("b", "because"), {"what": 3, "why": [None]}]
    assert signature.dump_many(good, LIMIT) == [
        '{"what":{"a":[1]}}',
        '{"what":"b","why":"because"}',
        '{"what":3,"why":[null]}',
    ]
    with pytest.raises(PayloadError, match="the argument why is a Decimal and would become a str"):
        signature.dump_many([*good, ("c", Decimal(1)), *good], LIMIT)
