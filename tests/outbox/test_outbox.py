"""Messages as values: what may be one, and how long one waits that could not be delivered."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.outbox.model import LARGEST_BODY, LONGEST_NAME, NewMessage, TopicPolicy, Undelivered

FAILED = Undelivered("refused")


def a_message(**given: Any) -> NewMessage:
    return NewMessage(**{"id": "one", "topic": "orders", "key": None, "body": b"{}", **given})


def test_a_message_may_be_as_large_as_allowed_and_have_odd_names() -> None:  # E44
    for name in ("ß", "日本", "🧵", "x" * LONGEST_NAME, "a b", "'; --"):
        assert a_message(topic=name, key=name, headers={name: name}).topic == name
    assert len(a_message(body=b"x" * LARGEST_BODY).body) == LARGEST_BODY
    assert a_message(headers={"empty": ""}).headers == {"empty": ""}


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": ""},
        {"topic": "x" * (LONGEST_NAME + 1)},
        {"topic": "\0"},
        {"topic": None},
        {"key": ""},
        {"key": "\ud800"},
        {"key": 7},
        {"id": "\n"},
        {"body": b"x" * (LARGEST_BODY + 1)},
        {"headers": {"": "x"}},
        {"headers": {"a": "\r\n"}},
        {"headers": {"a": None}},
        {"headers": {str(n): "" for n in range(51)}},
        {"headers": {"a": "x" * 2001}},
    ],
)
def test_what_no_store_or_target_could_take_is_refused(wrong: dict[str, Any]) -> None:  # E44
    with pytest.raises(UsageError) as refused:
        a_message(**wrong)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 200


def test_the_wait_doubles_up_to_its_cap() -> None:  # E44
    policy = TopicPolicy(base="1s", cap="10s")
    waits = [policy.after(tries, FAILED, 1.0) for tries in (1, 2, 3, 4, 5, 1000)]
    assert waits == [timedelta(seconds=s) for s in (1, 2, 4, 8, 10, 10)]
    assert policy.after(3, FAILED, 0.0) == timedelta(seconds=2)  # chance spreads them over the upper half


def test_a_message_is_parked_after_its_last_try_or_when_no_try_can_help() -> None:  # E44
    policy = TopicPolicy(max_tries=3)
    assert policy.after(2, FAILED, 0.5) is not None
    assert policy.after(3, FAILED, 0.5) is None
    assert policy.after(1, Undelivered("no route", lasting=True), 0.5) is None
    assert TopicPolicy().after(10_000, FAILED, 0.5) is not None


def test_what_the_target_asks_for_is_kept_up_to_the_cap() -> None:  # E44
    policy = TopicPolicy(base="1s", cap="10s")
    asked = [Undelivered("busy", after=timedelta(seconds=s)) for s in (0, 5, 3600)]
    assert [policy.after(1, one, 1.0) for one in asked] == [timedelta(seconds=s) for s in (1, 5, 10)]


@pytest.mark.parametrize("wrong", [{"base": 0}, {"base": "5s", "cap": "1s"}, {"max_tries": 0}, {"cap": "2d"}])
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:  # E44
    with pytest.raises(UsageError):
        TopicPolicy(**wrong)
