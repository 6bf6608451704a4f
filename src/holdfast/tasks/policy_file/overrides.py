"""Overrides: values in the store that are laid over the policy file, key by key."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from math import isfinite
from typing import Any

from holdfast.errors import UsageError
from holdfast.tasks.policy_file.line_numbers import DOTTED_KEY, Path
from holdfast.tasks.policy_file.reading import Document
from holdfast.tasks.policy_file.tables import PolicySource, dotted, toml_text
from holdfast.values.suggest import suggest

Keys = tuple[str, ...]

#: The sections of a policy file that can be overridden, with the least number of parts of a key in each.
SECTIONS: Mapping[str, int] = {
    "tasks": 3,
    "queues": 3,
    "dependencies": 3,
    "owners": 3,
    "quotas": 3,
    "priorities": 2,
}
_LONGEST_KEY = 500
_LONGEST_VALUE = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A value that is laid over the policy file, from the moment when it was set until it ends."""

    key: str  #: as in a policy file: `tasks.convert.max_attempts`
    value: Any
    version: int  #: grows with every change of any override
    by: str
    reason: str
    set_at: datetime
    expires_at: datetime | None = None
    ended_at: datetime | None = None
    ended_by: str | None = None  #: None while it is in force, and after it has expired
    ended_reason: str | None = None

    @property
    def path(self) -> Keys:
        """The parts of the key."""
        return read_key(self.key)


@lru_cache(maxsize=2000)
def read_key(text: str) -> Keys:
    """Return the parts of a key as it is written in a policy file: `owners."user:7".quota`.

    Raises:
        UsageError: It is not a key, or not one that can be overridden.
    """
    path = parts_of(text)
    if path[0] not in SECTIONS:
        raise UsageError(f"{text:.100}: this section cannot be overridden; {suggest(path[0], SECTIONS)}")
    if len(path) < SECTIONS[path[0]]:
        raise UsageError(
            f"{text:.100}: this is a whole section; name a key of it, e.g. tasks.convert.max_attempts"
        )
    return path


def parts_of(text: str) -> Keys:
    """Return the parts of a dotted key of TOML, which may be that of a section.

    Raises:
        UsageError: It is not a key.
    """
    if not isinstance(text, str) or len(text) > _LONGEST_KEY or not text.isprintable():
        raise UsageError(f"the key is {text!r:.60}; it is up to {_LONGEST_KEY} printable characters")
    path: list[str] = []
    try:
        value: Any = tomllib.loads(f"{text} = 0") if DOTTED_KEY.fullmatch(text) else None
    except tomllib.TOMLDecodeError:
        value = None
    while isinstance(value, dict):
        [(part, value)] = value.items()
        path.append(part)
    if not path:
        raise UsageError(f'the key is {text!r:.60}; write it as in holdfast.toml, e.g. owners."user:7".quota')
    return tuple(path)


def checked_value(key: str, value: Any) -> Any:
    """Return *value* if it can be written in a policy file.

    Raises:
        UsageError: It has another type than values of TOML, or is too long.
    """
    try:
        text = toml_value(value)
    except RecursionError:
        raise UsageError(f"{key}: the value is nested too deeply") from None
    if len(text) > _LONGEST_VALUE:
        raise UsageError(f"{key}: the value has {len(text):,} characters; it has at most {_LONGEST_VALUE:,}")
    return value


def read_value(text: str) -> Any:
    """Return the value that *text* spells in a policy file. What is no value there is a text: `100/min`, `gold`."""
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # not TOML, or a number that is too long
        return text
    return found["value"] if len(found) == 1 else text


# -- over the file ------------------------------------------------------------------------------------------------------
def lay_over(document: Document, overrides: Sequence[Override]) -> Document:
    """Return *document* with the values of *overrides*.

    Raises:
        UsageError: An override names a key of something that has no keys.
    """
    paths: dict[Path, str] = {override.path: override.by for override in overrides}
    lines = {path: line for path, line in document.source.lines.items() if not _is_below(path, paths)}
    source = PolicySource(document.source.file, lines, paths)
    values = dict(document.values)
    for override in overrides:
        *above, last = override.path
        table = values
        for place, part in enumerate(above):
            below = table.get(part, {})
            if not isinstance(below, dict):
                what = dotted(override.path[: place + 1])
                raise source.wrong(override.path, f"{what} has no keys here; override {what} as a whole")
            table[part] = dict(below)  # the document stays as it is
            table = table[part]
        table[last] = override.value
    return Document(values, source)


def overlapping(path: Keys, others: Sequence[Override]) -> Override | None:
    """Return one of *others* whose key is above or below *path*; None when there is none."""
    for other in others:
        shorter = min(len(path), len(other.path))
        if path != other.path and path[:shorter] == other.path[:shorter]:
            return other
    return None


def _is_below(path: Path, paths: Mapping[Path, str]) -> bool:
    return any(path[:length] in paths for length in range(2, len(path) + 1))


# -- as TOML ------------------------------------------------------------------------------------------------------------
def to_toml(overrides: Sequence[Override]) -> str:
    """Return *overrides* as the text of a policy file, each with its author and reason in a comment."""
    ordered = sorted(overrides, key=lambda override: (list(SECTIONS).index(override.path[0]), override.path))
    sections = []
    for header, group in groupby(
        ordered, key=lambda override: override.path[: SECTIONS[override.path[0]] - 1]
    ):
        lines = [f"[{dotted(header)}]"]
        for override in group:
            why = f": {override.reason}" if override.reason else ""
            lines.append(
                f"{dotted(override.path[len(header) :])} = {toml_value(override.value)}  # {override.by}{why}"
            )
        sections.append("\n".join(lines) + "\n")
    return "\n".join(sections)


def toml_value(value: Any) -> str:
    """Return *value* as it is written in a policy file.

    Raises:
        UsageError: It has another type than values of TOML.
    """
    match value:
        case bool():
            return "true" if value else "false"
        case str() if _is_unicode(value):
            return toml_text(value)
        case int() if abs(value) < 2**63:
            return str(value)
        case float() if isfinite(value):
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(toml_value, value))}]"
        case dict():
            pairs = (f"{dotted((_text_key(key),))} = {toml_value(one)}" for key, one in value.items())
            return f"{{ {', '.join(pairs)} }}"
    raise UsageError(
        f"{value!r:.60} cannot be written in a policy file; write a text, a number, true or false, a list or a table"
    )


def _text_key(key: object) -> str:
    if not isinstance(key, str) or not _is_unicode(key):
        raise UsageError(f"{key!r:.60} cannot be a key in a policy file; write a text")
    return key


def _is_unicode(text: str) -> bool:
    """Return whether *text* has no half of a surrogate pair, which cannot be stored."""
    return not any("\ud800" <= mark <= "\udfff" for mark in text)
