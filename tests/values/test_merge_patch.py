"""JSON merge patches."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.values.merge_patch import merge_patch

plain: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"file": "a.pdf", "pages": 3}, {"file": "b.pdf"}, {"file": "b.pdf", "pages": 3}),
        ({"file": "a.pdf", "pages": 3}, {"pages": None}, {"file": "a.pdf"}),
        ({"to": {"name": "Ann", "zip": "1"}}, {"to": {"zip": "2"}}, {"to": {"name": "Ann", "zip": "2"}}),
        ({"to": "Ann"}, {"to": {"zip": "2", "city": None}}, {"to": {"zip": "2"}}),
        ({"pages": [1, 2, {"a": 1}]}, {"pages": [{"a": None}]}, {"pages": [{"a": None}]}),
        ({"a": 1}, {"b": {"c": {"d": None}}}, {"a": 1, "b": {"c": {}}}),
        ({"a": 1}, [1], [1]),
        ([1], {"a": 1}, {"a": 1}),
    ],
)
def test_a_patch_changes_the_members_that_it_names(target: Any, patch: Any, result: Any) -> None:  # E33
    assert merge_patch(target, patch) == result


@given(plain, plain)
def test_a_patch_that_is_applied_again_changes_nothing_more(target: Any, patch: Any) -> None:  # E33
    before = deepcopy((target, patch))
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once
    assert (target, patch) == before
