"""Arguments as people write them one by one: `order=1001`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from holdfast.errors import UsageError


def read_pairs(pairs: Sequence[str], texts: Collection[str] = ()) -> dict[str, Any]:
    """Return the values of `name=value` *pairs* by name.

    A value is JSON where it can be read as JSON, else text. Of the arguments named in *texts* it is always text.
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"{pair[:60]!r} is not NAME=VALUE, e.g. order=1001")
        if name in values:
            raise UsageError(f"{name[:60]} is given twice; a list is written as JSON: {name[:60]}='[1, 2]'")
        values[name] = text if name in texts else _value(text)
    return values


def _value(text: str) -> Any:
    import msgspec  # unlike `json` it refuses NaN

    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text
