"""Where in a TOML text a key is: compared with what the parser finds in the same text."""

from __future__ import annotations

import tomllib
from pathlib import Path
from textwrap import dedent
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.tasks.policy_file.line_numbers import line_numbers_of, line_of

ROOT = Path(__file__).resolve().parents[2]


def paths(value: Any, here: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    """Every way into a parsed document."""
    inside: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        inside = list(value.items())
    elif isinstance(value, list):
        inside = list(enumerate(value))
    found = {here} if here else set()
    return found.union(*(paths(part, (*here, key)) for key, part in inside))


def test_each_way_of_writing_a_key_is_found() -> None:
    text = dedent('''\
        # a comment with [brackets] and = signs
        top = 1
        [tasks.one]
        a = "a # no comment"   # a comment
        b = { c = 1, "d e" = [ { f = 2 }, 3 ], g.h = 4 }
        multi = """
        [not.a.table]
        x = "\\""" still in it
        """
        [ tasks . "two three" ]
        'quoted' = [
            1,  # one
            [ 2,
              3 ],
        ]
        [[tasks.one.windows]]
        start = 08:00:00
        [[tasks.one.windows]]
        start = 1979-05-27 07:32:00
        [tasks.one.windows.deep]
        k = \'\'\'literal
        = "text\'\'\'
        dotted.key.of.many = true
    ''')
    lines = line_numbers_of(text)
    assert set(lines) == paths(tomllib.loads(text))
    assert lines["top",] == 2
    assert lines["tasks",] == lines["tasks", "one"] == 3
    assert lines["tasks", "one", "b", "d e", 0, "f"] == 5
    assert lines["tasks", "one", "multi"] == 6
    assert lines["tasks", "two three", "quoted"] == 11
    assert lines["tasks", "two three", "quoted", 1, 1] == 14
    assert lines["tasks", "one", "windows", 1, "start"] == 19
    assert lines["tasks", "one", "windows", 1, "deep", "k"] == 21
    assert lines["tasks", "one", "windows", 1, "deep", "dotted", "key", "of", "many"] == 23
    assert line_of(lines, ("tasks", "one", "a", "not", "there")) == 4
    assert line_of(lines, ("nowhere",)) is None


def test_the_example_is_found_in_whole() -> None:
    text = (ROOT / "examples" / "holdfast.toml").read_text("utf-8")
    assert set(line_numbers_of(text)) == paths(tomllib.loads(text))


keys = st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True) | st.sampled_from(
    ['"a b"', "'c.d'", '"\\u00e9"', '""']
)
space = st.sampled_from(["", " ", "\t"])
breaks = st.sampled_from(["", " ", "\n", " # [x] = 1\n", "\n\n"])
atoms = st.sampled_from(
    [
        "1",
        "true",
        '"a"',
        '"#]}"',
        "'\\'",
        '"""a\n"b" ] """',
        "'''\n{''",
        "08:00:00",
        "-1.5e3",
        '"\\\\"',
        '"\\""',
    ]
)


def arrays(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(st.lists(inner, max_size=3), breaks, breaks).map(
        lambda given: f"[{given[1]}" + f",{given[2]}".join(given[0]) + f"{given[1]}]"
    )


def inline(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.dictionaries(keys, inner, max_size=3).map(
        lambda given: "{" + ", ".join(f"{key} = {value}" for key, value in given.items()) + "}"
    )


values = st.recursive(atoms, lambda inner: arrays(inner) | inline(inner), max_leaves=6)
pairs = st.tuples(st.lists(keys, min_size=1, max_size=3), space, values).map(
    lambda given: ".".join(given[0]) + f"{given[1]}={given[1]}{given[2]}"
)
headers = st.tuples(st.lists(keys, min_size=1, max_size=3), space, st.booleans()).map(
    lambda given: (
        ("[[" if given[2] else "[") + f"{given[1]}.{given[1]}".join(given[0]) + ("]]" if given[2] else "]")
    )
)


@given(st.lists(pairs | headers | st.just("# comment ["), max_size=8))
def test_every_key_of_any_document_is_found(statements: list[str]) -> None:
    text = "\n".join(statements)
    try:
        parsed = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    lines = line_numbers_of(text)
    assert set(lines) == paths(parsed)
    assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())
