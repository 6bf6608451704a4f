"""What hides secrets hides the same as a plain reading of the rules, and takes time in proportion to the text."""

from __future__ import annotations

import re
import sys
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.redaction import HIDDEN, redact_text, redacted
from tests.growth import MOST, growth, repeated

# The rules, each as one pattern. They are easy to read and slow: some take quadratic time.
_RULES = (
    (re.compile(r"""((?<![\w+.-])[\w+.-]+://[^\s:/@"'<>]*):[^\s"'<>]+@"""), rf"\1:{HIDDEN}@"),
    (re.compile(r"""((?<![\w+.-])[\w+.-]+://[^\s?"'<>]*)\?[^\s"'<>]+"""), rf"\1?{HIDDEN}"),
    (re.compile(r"\b(bearer|basic|digest)\s+[A-Za-z0-9._~+/=-]{6,}", re.I), rf"\1 {HIDDEN}"),
    (
        re.compile(
            "(password|passwd|passphrase|secret|token|api[-_]?key|authorization|cookie|signature|credentials?)"
            r"""(["']?\s*[=:]\s*["']?)(?!(?:bearer|basic|digest)\s)[^\s&;,"'}]+""",
            re.I,
        ),
        rf"\1\2{HIDDEN}",
    ),
    (
        re.compile(
            r"\beyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*|\b(?:sk|rk)[-_][\w-]{16,}|\bgh[pousr]_\w{20,}"
            r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bxox[abprs]-[\w-]{10,}|\bwhsec_[\w+/=-]{8,}|\bhf_[\w-]{20,}"
        ),
        HIDDEN,
    ),
)
#: What the rules speak of, and letters that lower case and patterns which ignore case do not treat alike.
_PIECES = [
    *"@:?/ \n='\"<>&;,}.-_+aé", "://", "http", "postgresql://u:p@ss", "Password", "to\u212aen", "TOKEN", "api_key", "API-KEY",
    "apikey", "credentials", "Cookie:", "bearer ", "Basic", "digest\t", "ba\u017fic ", "bas\u0130c ", "d\u0131gest ", "\u0130", "Σ",
    "eyJ", "eyJabcdefgh", "sk-", "rk_", "ghp_", "AKIA", "ABCDEFGHIJKLMNOP", "xoxb-", "whsec_", "hf_", "12345678", "abcd",
    "x" * 20, "\u2028", HIDDEN, "\0", "😀",
]  # fmt: skip
_HOSTILE = [
    "a://", "://", "a://b:", "a://b:c@", "a://?", "a:", "@", "?", "a@", "x://u:p?", "a://\n", "token", "token=", "token = ", "token:",
    "token ", "password='", 'secret" ', "api", "bearer ", "bearer", "basic\n", "eyJ", "-eyJ", "eyJ-", "-eyJaaaaaaaa", "eyJ.",
    "eyJaaaaaaaa.aaaa", ".eyJaaaaaaaa", "sk-", "-sk", "sk-a ", "ghp_", "AKIA", "xoxb-", "whsec_", "hf_", " ", "\n", "a", "\u0130", "é",
]  # fmt: skip


def plainly(text: str) -> str:
    for rule, shown in _RULES:
        text = rule.sub(shown, text)
    return text


@settings(max_examples=1500, deadline=None)
@given(st.lists(st.sampled_from(_PIECES), max_size=16).map("".join))
def test_the_same_is_hidden_as_by_the_rules_read_plainly(text: str) -> None:  # E63
    assert redact_text(text) == plainly(text)


def test_every_letter_has_one_lower_case_letter_at_its_place() -> None:
    """Two patterns read the text in lower case and hide by place: no letter may become two."""
    from holdfast.redaction import _lowered

    letters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    assert [letter for letter in letters if len(_lowered(letter)) != 1] == []


@pytest.mark.parametrize("unit", _HOSTILE)
@pytest.mark.parametrize(("prefix", "suffix"), [("", ""), ("token a://eyJ", "=@")])
def test_twice_the_text_costs_twice_the_time(unit: str, prefix: str, suffix: str) -> None:  # E63
    assert growth(redact_text, partial(repeated, unit, prefix=prefix, suffix=suffix)) <= MOST


def test_names_of_values_cost_time_in_proportion_too() -> None:  # E63
    for unit in ("a", "A", "aA", "Aa", "1A", "_", "api", "é"):
        assert growth(lambda text: redacted(text, 1), partial(repeated, unit, prefix="", suffix="")) <= MOST
