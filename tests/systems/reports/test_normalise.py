"""Repairs that leave no doubt, and nothing beyond them (P4)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systems.reports.chain import report_bytes
from systems.reports.normalise import NotJson, normalise

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "value", "repairs"),
    [
        ('{"a": 1}', {"a": 1}, []),
        ('\ufeff \n{"a": 1}\n', {"a": 1}, []),
        ('```json\n{"a": 1}\n```', {"a": 1}, ["code_fence"]),
        ('```\n[1, 2]\n```', [1, 2], ["code_fence"]),
        ('Sure!\n\n```json\n{"a": 1}\n```\nAnything else?', {"a": 1}, ["code_fence"]),
        ('Here it is: {"a": "}"} as you asked.', {"a": "}"}, ["prose"]),
        ('<think>{"draft": 1}</think>{"a": 1}', {"a": 1}, ["thinking"]),
        ('{"a": [1, 2,], "b": "x,]",}', {"a": [1, 2], "b": "x,]"}, ["trailing_comma"]),
        ('```json\n{"a": 1,}\n```', {"a": 1}, ["code_fence", "trailing_comma"]),
        ('```json\n{"a": 1}\n```\nor again\n```json\n{"a": 1}\n```', {"a": 1}, ["code_fence"]),
        ('Note {this}: {"a": 1}', {"a": 1}, ["prose"]),
    ],
)  # fmt: skip
def test_what_is_meant_is_found_and_what_was_done_is_said(
    text: str, value: Any, repairs: list[str]
) -> None:  # P4
    assert normalise(text) == (value, repairs)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "nothing here",
        '{"a": 1} or {"a": 2}',
        '```json\n{"a": 1}\n```\n```json\n{"a": 2}\n```',
        '{"a": 1, "a": 2}',
        '{"a": NaN}',
        '{"a": 1e999}',
        "[1,,]",
        "[,]",
        '{"a": 1',
        "{'a': 1}",
        "[" * 1_000_000,
        "{" * 1_000_000,
        '[{"a":' * 150_000,
        '["' + '\\"' * 500_000,
        "```a\n" * 250_000,
        "[" + '"x",' * 250_000,
        "```\n[1 " + "\t" * 900_000,
        "<think>" * 140_000,
        '{"a":' * 5_000 + "1" + "}" * 5_000,
        "<html>" * 1_000,
        '"' * 99_999,
        "9" * 10_000 + "x",
    ],
    ids=lambda text: text[:20],
)
@pytest.mark.timeout(30)
def test_where_there_is_doubt_nothing_is_guessed(text: str) -> None:  # P4
    with pytest.raises(NotJson):
        normalise(text)


@settings(max_examples=50, deadline=None)
@given(values)
def test_what_is_json_stays_as_it_is(value: Any) -> None:  # P4
    assert normalise(json.dumps(value)) == (value, [])


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(max_size=8), values, min_size=1, max_size=4))
def test_a_fence_around_an_object_changes_nothing_in_it(value: dict[str, Any]) -> None:  # P4
    assert normalise(f"So:\n```json\n{json.dumps(value, indent=1)}\n```\n").value == value


@settings(max_examples=50, deadline=None)
@given(values)
def test_a_written_report_reads_back_the_same_and_has_no_markup(value: Any) -> None:
    data = report_bytes(value)
    assert json.loads(data) == value
    assert not set(b"<>&") & set(data)
