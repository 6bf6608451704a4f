"""What the stand-in "understands": the values that a JSON schema asks for, found in a document by its labels.

A property `invoice_number` is looked for as a line that begins with "Invoice number", "Invoice no" or "Invoice #", in any
case; its title counts as a label too. An array of objects is read from lines with as many columns as the object has
properties. What is not found is left out, so that a document without it fails the schema as it would with a real model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NUMBER_WORDS = r"(?:number|no\.?|nr\.?|#)"
_COLUMNS = re.compile(r"\s{2,}|\t|\s*\|\s*|\s*;\s*")
_AMOUNT = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?|-?\d+(?:\.\d+)?")


def extract(schema: Mapping[str, Any], document: str) -> dict[str, Any]:
    """The object that *schema* describes, as far as *document* has it."""
    found: dict[str, Any] = {}
    for name, wanted in _properties(schema).items():
        value = _items(wanted, document) if _kind(wanted) == "array" else _labelled(name, wanted, document)
        if value is not None:
            found[name] = value
    return found


def _properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    given = schema.get("properties")
    if not isinstance(given, Mapping):
        return {}
    return {str(name): wanted for name, wanted in given.items() if isinstance(wanted, Mapping)}


def _kind(wanted: Mapping[str, Any]) -> str:
    kind = wanted.get("type", "string")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "string")
    return str(kind)


def _labelled(name: str, wanted: Mapping[str, Any], document: str) -> Any:
    for label in {name.replace("_", " "), str(wanted.get("title") or name.replace("_", " "))}:
        words = [re.escape(word) for word in label.split()[:8]]
        if words and words[-1].lower() in ("number", "no"):
            words[-1] = _NUMBER_WORDS
        pattern = rf"^[ \t>*-]*{r'[ _-]*'.join(words)}[ \t]*[:=#][ \t]*(.+)$"
        if said := re.search(pattern, document[:1_000_000], re.IGNORECASE | re.MULTILINE):
            return _read(wanted, said[1].rstrip(" \t"))
    return None


def _read(wanted: Mapping[str, Any], text: str) -> Any:
    match _kind(wanted):
        case "number" | "integer" as kind:
            amount = _AMOUNT.search(text)
            if amount is None:
                return text
            value = float(amount[0].replace(",", ""))
            return int(value) if kind == "integer" else value
        case "boolean":
            return text.lower() in ("yes", "true", "1")
    return _date(text) if wanted.get("format") == "date" else text


def _date(text: str) -> str:
    """As ISO 8601 has it, from "3 May 2026", "May 3, 2026" or itself; anything else stays as it is."""
    if spelled := re.search(r"(\d{1,2})\.? ([A-Za-z]{3})[a-z]* (\d{4})", text):
        day, month, year = spelled.groups()
    elif spelled := re.search(r"(?<![a-z])([A-Za-z]{3})[a-z]*+ (\d{1,2}), (\d{4})", text):
        month, day, year = spelled.groups()
    else:
        return text
    if month.lower() not in _MONTHS:
        return text
    return f"{int(year):04}-{_MONTHS.index(month.lower()) + 1:02}-{int(day):02}"


def _items(wanted: Mapping[str, Any], document: str) -> list[dict[str, Any]] | None:
    inner = wanted.get("items")
    properties = _properties(inner) if isinstance(inner, Mapping) else {}
    if not properties:
        return None
    rows = []
    for line in document.splitlines()[:10_000]:
        cells = [cell for cell in _COLUMNS.split(line.strip()) if cell]
        if len(cells) == len(properties) and _fits(properties, cells):
            rows.append(
                {name: _read(properties[name], cell) for name, cell in zip(properties, cells, strict=True)}
            )
    return rows


def _fits(properties: Mapping[str, Mapping[str, Any]], cells: list[str]) -> bool:
    """A row has a number wherever one is wanted; a header has not."""
    return all(
        _kind(wanted) not in ("number", "integer") or _AMOUNT.search(cell)
        for wanted, cell in zip(properties.values(), cells, strict=True)
    )
