"""Find every log event in the source, and compare the events with `docs/reference/log-events.md`.

`python -m tools.log_events` prints one row per event: the section of the page, the name, the levels and the
fields.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "log-events.md"
FOLDERS = ("src", "systems")
#: The level of each method of `Log`.
LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error"}
#: The shape of a name: `noun.verbed`.
NAME = re.compile(r"[a-z][a-z_]*\.[a-z][a-z_]*")

_ROW = re.compile(r"^\| `(?P<name>[^`]+)` \| (?P<levels>[^|]+) \| (?P<meaning>[^|]+) \| (?P<fields>[^|]*)\|$")

#: A section of the page and a name.
Key = tuple[str, str]


@dataclass(slots=True)
class Event:
    """What the source, or the page, says about one event in one section.

    Attributes:
        levels: The levels at which it is logged.
        fields: The names of its fields.
        more: Whether a call also passes `**fields`, whose names are not known.
    """

    levels: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)
    more: bool = False


class UnreadableEvent(Exception):
    """A call logs an event whose name is neither a literal nor in a table of the same module."""


# -- the source ------------------------------------------------------------------------------------------------------
def find_events(root: Path = ROOT) -> dict[Key, Event]:
    """Return the events that the Python files below *root* log, sorted by section and name.

    Raises:
        UnreadableEvent: A call computes the name of its event.
    """
    found: dict[Key, Event] = {}
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py")):
        place = path.relative_to(root)
        for name, call in calls_in(path.read_text(encoding="utf-8"), place.as_posix()):
            event = found.setdefault((_section(place), name), Event())
            event.levels.add(LEVELS[call.func.attr])  # type: ignore[attr-defined] # `_is_log_call` checked it
            event.fields |= {keyword.arg for keyword in call.keywords if keyword.arg is not None}
            event.more |= any(keyword.arg is None for keyword in call.keywords)
    return dict(sorted(found.items()))


def calls_in(source: str, place: str = "<source>") -> Iterator[tuple[str, ast.Call]]:
    """Yield the name of each event that *source* logs, with the call that logs it."""
    tree = ast.parse(source)
    loggers, tables = _loggers(tree), _tables(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_log_call(node, loggers):
            names = _names(node.args[0], tables) if node.args else []
            if not names:
                raise UnreadableEvent(f"{place}:{node.lineno}: give the event's name as a literal")
            for name in names:
                yield name, node


def _section(place: Path) -> str:
    return "Holdfast" if place.parts[0] == "src" else place.parts[1].capitalize()


def _loggers(tree: ast.Module) -> set[str]:
    """Return the names that this module binds to a `Log`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                names |= {to.id for to, value in pairs if isinstance(to, ast.Name) and _makes_log(value)}
    return names


def _makes_log(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Log"


def _tables(tree: ast.Module) -> dict[str, list[str]]:
    """Return the strings of the module's dictionaries, by the dictionary's name."""
    tables: dict[str, list[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            values = [text for value in node.value.values if (text := _text(value)) is not None]
            tables |= {target.id: values for target in node.targets if isinstance(target, ast.Name)}
    return tables


def _is_log_call(call: ast.Call, loggers: set[str]) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in LEVELS:
        return False
    logger = function.value
    return (isinstance(logger, ast.Name) and logger.id in loggers) or _makes_log(logger)


def _names(node: ast.expr, tables: dict[str, list[str]]) -> list[str]:
    if isinstance(node, ast.IfExp):
        one, other = _names(node.body, tables), _names(node.orelse, tables)
        return one + other if one and other else []
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return tables.get(node.value.id, [])
    text = _text(node)
    return [] if text is None else [text]


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


# -- the page --------------------------------------------------------------------------------------------------------
def read_page(text: str) -> dict[Key, Event]:
    """Return the rows of the page's tables, in their order."""
    rows: dict[Key, Event] = {}
    section = ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif row := _ROW.match(line):
            levels = {level.strip() for level in row["levels"].split(",")}
            rows[section, row["name"]] = Event(levels, set(re.findall(r"`(\w+)`", row["fields"])))
    return rows


def differences(found: dict[Key, Event], rows: dict[Key, Event]) -> list[str]:
    """Return a sentence for each difference between the source's events and the page's rows."""
    wrong = [f"{section}: {name} is not on the page" for section, name in found.keys() - rows.keys()]
    wrong += [f"{section}: {name} is not in the source" for section, name in rows.keys() - found.keys()]
    for key in found.keys() & rows.keys():
        event, row, label = found[key], rows[key], ": ".join(key)
        if event.levels != row.levels:
            wrong.append(f"{label} is logged at {sorted(event.levels)}, the page says {sorted(row.levels)}")
        if missing := event.fields - row.fields:
            wrong.append(f"{label} has the fields {sorted(missing)}, the page does not list them")
        if not event.more and (strange := row.fields - event.fields):
            wrong.append(f"{label} has no fields {sorted(strange)}, the page lists them")
    return sorted(wrong)


if __name__ == "__main__":
    for (section, name), event in find_events().items():
        fields = ", ".join([*sorted(event.fields), *(["…"] if event.more else [])])
        print(section, name, ", ".join(sorted(event.levels)), fields, sep=" | ")
