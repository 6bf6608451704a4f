"""Find the values that a JSON schema asks for in a document, by the labels of its lines.

A property `invoice_number` matches a line that begins with "Invoice number", "Invoice no" or "Invoice #", in
any case. The property's title is a label too. An array of objects is read from lines with as many columns as
the object has properties. A missing value is left out, so that the answer fails the schema, as a real model's
answer would.
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
    """Return the object that *schema* describes, with the values that *document* has."""
    values: dict[str, Any] = {}
    for name, part in _properties(schema).items():
        value = _items(part, document) if _kind(part) == "array" else _labelled(name, part, document)
        if value is not None:
            values[name] = value
    return values


def _properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {str(name): part for name, part in properties.items() if isinstance(part, Mapping)}


def _kind(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type", "string")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "string")
    return str(kind)


def _labelled(name: str, schema: Mapping[str, Any], document: str) -> Any:
    for label in {name.replace("_", " "), str(schema.get("title") or name.replace("_", " "))}:
        words = [re.escape(word) for word in label.split()[:8]]
        if words and words[-1].lower() in ("number", "no"):
            words[-1] = _NUMBER_WORDS
        pattern = rf"^[ \t>*-]*{r'[ _-]*'.join(words)}[ \t]*[:=#][ \t]*(.+)$"
        if match := re.search(pattern, document[:1_000_000], re.IGNORECASE | re.MULTILINE):
            return _read(schema, match[1].rstrip(" \t"))
    return None


def _read(schema: Mapping[str, Any], text: str) -> Any:
    match _kind(schema):
        case "number" | "integer" as kind:
            amount = _AMOUNT.search(text)
            if amount is None:
                return text
            value = float(amount[0].replace(",", ""))
            return int(value) if kind == "integer" else value
        case "boolean":
            return text.lower() in ("yes", "true", "1")
    return _date(text) if schema.get("format") == "date" else text


def _date(text: str) -> str:
    """Return "3 May 2026" or "May 3, 2026" as an ISO 8601 date. Any other text is returned unchanged."""
    if spelled := re.search(r"(\d{1,2})\.? ([A-Za-z]{3})[a-z]* (\d{4})", text):
        day, month, year = spelled.groups()
    elif spelled := re.search(r"(?<![a-z])([A-Za-z]{3})[a-z]*+ (\d{1,2}), (\d{4})", text):
        month, day, year = spelled.groups()
    else:
        return text
    if month.lower() not in _MONTHS:
        return text
    return f"{int(year):04}-{_MONTHS.index(month.lower()) + 1:02}-{int(day):02}"


def _items(schema: Mapping[str, Any], document: str) -> list[dict[str, Any]] | None:
    inner = schema.get("items")
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
    """Return whether every cell that should be a number is one. A header line fails this."""
    return all(
        _kind(schema) not in ("number", "integer") or _AMOUNT.search(cell)
        for schema, cell in zip(properties.values(), cells, strict=True)
    )
