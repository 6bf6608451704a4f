"""Patterns that read foreign text read it in linear time: every one in the source is found, and tried on hostile texts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import holdfast
import systems
from holdfast.attempt_log import AttemptLog
from holdfast.engine.tracebacks import traced
from holdfast.jobs.fingerprint import mask
from holdfast.jobs.schedule import Cron
from holdfast.logging import as_text
from holdfast.resilience.classify import classify, parse_retry_after
from holdfast.resilience.limits import Rate
from holdfast.resilience.windows import _read_time as read_time
from holdfast.server import strict_json
from holdfast.server.headers import is_host, is_origin
from holdfast.server.idempotency import _read as read_name
from holdfast.values.addresses import networks, read_target
from holdfast.values.duration import duration
from systems.converter.mapping.metadata import split_names
from systems.provider.extraction import extract
from systems.provider.rubric import grade
from systems.reports.model.errors import parse_span
from systems.reports.normalise import normalise
from tests.growth import MOST, growth, repeated
from tests.patterns import Found, hostile, imports_of_re, patterns_of, reader

ROOTS = {"holdfast": Path(holdfast.__file__).parent, "systems": Path(systems.__path__[0])}

#: Patterns that read only what we wrote ourselves, and what that is.
OURS: dict[str, str] = {
    "holdfast/stores/conditions:fit": "statements that the stores wrote",
}
#: Patterns whose callers refuse or cut a longer text before: how long it may be.
BOUNDED: dict[str, int] = {
    "holdfast/values/duration:_PART": 60,
    "holdfast/values/duration:_SPLIT_NUMBER": 60,
    "holdfast/jobs/fingerprint:_MASKS#2": 500,
}
#: Patterns that are made while the program runs: what one may look like.
EXAMPLES: dict[str, str] = {
    "systems/provider/extraction:_labelled": r"^[ \t>*-]*invoice[ _-]*(?:number|no\.?|nr\.?|#)[ \t]*[:=#][ \t]*(.+)$",
}
#: Further units for a pattern.
UNITS: dict[str, tuple[str, ...]] = {
    "systems/reports/normalise:_COMMAS": ('"\\',),
    "holdfast/server/strict_json:_STRING": ('"\\',),
}

FOUND = {one.key: one for package, root in ROOTS.items() for one in patterns_of(root, package)}
#: What is longer is suspicious: more than a text of this size costs in linear time.
_SUSPICIOUS, _SIZE = 0.0003, 3000


def slow_on(
    pattern: re.Pattern[Any], use: str, longest: int | None = None, more: tuple[str, ...] = ()
) -> list[Any]:
    """The first hostile text whose doubling costs too much. Only those that take long at all are measured with care."""
    read, usual = reader(pattern, use), _SUSPICIOUS
    for unit, prefix, suffix in hostile(pattern, *more):
        parts: list[Any] = [unit, prefix, suffix]
        if isinstance(pattern.pattern, bytes):
            parts = [part.encode("latin-1", "replace") for part in parts]
        make = partial(repeated, parts[0], prefix=parts[1], suffix=parts[2])
        text = make(_SIZE)[:longest]
        began = time.process_time()
        read(text)
        spent = time.process_time() - began
        if spent > usual:
            usual = max(usual, 2 * spent)
            grows = growth(read, partial(_cut, make, longest))
            if grows > MOST:
                return [(unit, prefix, suffix, round(grows, 1))]
    return []


def _cut(make: Callable[[int], Any], longest: int | None, size: int) -> Any:
    return make(size)[:longest]


def pattern_of(found: Found) -> re.Pattern[Any]:
    return re.compile(EXAMPLES[found.key], re.I | re.M) if found.key in EXAMPLES else found.compiled()


@pytest.mark.parametrize("key", sorted(FOUND.keys() - OURS.keys()))
def test_twice_the_text_costs_a_pattern_twice_the_time(key: str) -> None:  # E66
    found = FOUND[key]
    for use in sorted(found.uses):
        assert slow_on(pattern_of(found), use, BOUNDED.get(key), UNITS.get(key, ())) == []


def test_every_exception_is_of_a_pattern_that_is_there() -> None:
    assert (OURS.keys() | BOUNDED.keys() | EXAMPLES.keys() | UNITS.keys()) <= FOUND.keys()


_INVOICE: dict[str, Any] = {
    "properties": {
        "invoice_number": {"type": "string"},
        "date": {"type": "string", "format": "date"},
        "lines": {
            "type": "array",
            "items": {"properties": {"a": {"type": "string"}, "b": {"type": "number"}}},
        },
    }
}


def _json(text: str) -> object:
    """A body of so many brackets that its strings are looked at before it is read."""
    return strict_json.read(b"[" * (strict_json.MOST + 1) + text.encode())


def _failed(text: str) -> object:
    return traced(classify(ValueError(text), task="t"), ValueError(text))


def _logged(text: str) -> object:
    log = AttemptLog()
    log.add(datetime(2026, 1, 1, tzinfo=UTC), "INFO", text, {"said": text})
    return log.lines()


#: Functions that foreign text comes to first, and units that its patterns and loops could stumble over.
ROADS: dict[str, tuple[Callable[[str], object], tuple[str, ...]]] = {
    "duration": (duration, ("1", "1.", "1s", " ", "1 ", "1s ", ".")),
    "rate": (Rate.read, ("1", " ", "1/", "1/s", "/")),
    "time of day": (lambda text: read_time("start", text), ("1", "1:", ":")),
    "cron": (Cron, ("*", "* ", "1,", "1-2,", "*/", "1")),
    "Retry-After": (lambda text: parse_retry_after(text, datetime.now(UTC)), ("1", "Wed, ", " ", ":", "GMT")),
    "fingerprint": (mask, ("a", "a:", "/a", "1.", "'", '"', "0", "a-")),
    "failure": (_failed, ("a", "a://", "\n", "\r\n", "/a", "eyJ-", "token")),
    "log of an attempt": (_logged, ("a", "a://", "\n", "\0", "eyJ-", "token=")),
    "console": (lambda text: as_text({"event": text, "said": text, "exception": text}), ("a", "\n", "\x1b", " ", "\\")),
    "JSON body": (_json, ('"', '"a\\', "\\", '"\\u003a', '"\\u0000', "[", '{"a":', "1,", ":", '"a":1,')),
    "Idempotency-Key": (read_name, ('"', "\\", '\\"', "a", " ", '"a')),
    "Host": (lambda text: is_host.__wrapped__(text.encode()), ("a", "a.", "[", "[::", ":", "1:")),
    "Origin": (lambda text: is_origin.__wrapped__(text.encode()), ("a", "a://", "http://", "://", "/")),
    "URL of a user": (read_target, ("a", "http://", "http://a.", "a.", "@", "[")),
    "networks": (networks, (" ", ",", " ,", "10.0.0.0/8 ", "1")),
    "answer of a model": (normalise, ("<think>", "{", "[", '"', '"\\', ",", " ,", "1 ,]", "```\n", "{}", "\n")),
    "reset of a rate limit": (parse_span, ("1", "1h", "1m", "1.", "s")),
    "names in a PDF": (split_names, (" ", ",", " and", "a", "\n", " ,")),
    "text to extract from": (
        lambda text: extract(_INVOICE, text), (" ", "invoice number: a ", "date: a", "a ", "1,", ";", "|", "\n", "-"),
    ),
    "text to grade": (grade, ("a", "a'", "a-", ".", "a.", " ", "1")),
}  # fmt: skip


@pytest.mark.parametrize(
    ("road", "unit"), [(road, unit) for road, (_, units) in ROADS.items() for unit in units]
)
def test_twice_the_foreign_text_costs_twice_the_time(road: str, unit: str) -> None:  # E66
    call, _ = ROADS[road]
    for prefix, suffix in (("", ""), ("date: may", "!\0")):
        assert growth(call, partial(repeated, unit, prefix=prefix, suffix=suffix)) <= MOST


@pytest.mark.parametrize("package", ROOTS)
def test_no_pattern_is_made_by_a_way_that_is_not_seen(package: str) -> None:
    assert list(imports_of_re(ROOTS[package])) == []


@pytest.mark.parametrize(
    ("pattern", "use"),
    [
        (r"""((?<![\w+.-])[\w+.-]+://[^\s?"'<>]*)\?[^\s"'<>]+""", "sub"),
        (r"\beyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*", "search"),
        (r"(\d+(?:\.\d+)?)s", "findall"),
        (r"\s*,\s*", "split"),
        (r"[a-z-]+://\S+", "sub"),
        (r"[\d*]+$", "search"),
    ],
)
def test_a_pattern_that_is_slow_is_seen(pattern: str, use: str) -> None:
    assert slow_on(re.compile(pattern), use) != []


def test_every_way_to_write_a_pattern_is_found(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "some.py").write_text(
        """import re
_A = re.compile(r"a+b", re.I)
_MANY = (re.compile("c"), (re.compile("d"), "x"))
NAME = Annotated[str, Meta(pattern="^e$")]
class K:
    F = re.compile("f")
    def g(self, text):
        _A.fullmatch(text)
        return re.sub("h", "", text, flags=re.M) or re.split("i", text) or re.compile(text)
""",
        "utf-8",
    )
    found = {one.key: (one.expression, one.flags, one.uses) for one in patterns_of(tmp_path, "p")}
    assert found == {
        "p/inner/some:_A": ("'a+b'", "re.I", {"fullmatch"}),
        "p/inner/some:_MANY": ("'c'", "0", {"sub"}),
        "p/inner/some:_MANY#2": ("'d'", "0", {"sub"}),
        "p/inner/some:NAME": ("'^e$'", "0", {"search"}),
        "p/inner/some:K": ("'f'", "0", {"sub"}),
        "p/inner/some:g": ("'h'", "re.M", {"sub"}),
        "p/inner/some:g#2": ("'i'", "0", {"split"}),
        "p/inner/some:g#3": ("text", "0", {"sub"}),
    }
    (tmp_path / "other.py").write_text("from re import compile\nimport re as r\nimport regex\n", "utf-8")
    assert [said for _, said in imports_of_re(tmp_path)] == [
        "from re import compile",
        "import re as r",
        "import regex",
    ]
