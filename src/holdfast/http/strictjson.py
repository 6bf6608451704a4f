"""JSON as senders must write it: what two readers could understand differently is refused, quickly, whatever its size."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from holdfast.http.problems import Problem

_decode = msgspec.json.Decoder().decode
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NUL = b"\\u0000"


def read(body: bytes) -> Any:
    """The value of *body*. A problem for anything but UTF-8 and RFC 8259, and for what that allows and readers differ in:
    a name given twice, numbers without end, half a character (400), NUL in a text (422)."""
    try:
        value = _decode(body)
    except msgspec.ValidationError:
        raise Problem("BAD_JSON", "a number in the body is too large to be read exactly") from None
    except RecursionError:
        raise Problem("BAD_JSON", "the body is nested too deeply") from None
    except UnicodeDecodeError:
        raise Problem("BAD_JSON", "the body is not proper UTF-8") from None
    except msgspec.DecodeError as error:
        raise Problem("BAD_JSON", str(error)) from None
    if b":" in body and _names_written(body) != _names_read(value):
        raise Problem("BAD_JSON", "an object in the body has the same name twice")
    if _NUL in body and _has_nul(value):
        raise Problem("INVALID", "a text in the body holds NUL, which cannot be stored")
    return value


def _names_written(body: bytes) -> int:
    """Outside of strings a colon stands only behind a name."""
    return _STRING.sub(b"", body).count(b":")


def _names_read(value: Any) -> int:
    count, left = 0, [value]
    while left:
        inner = left.pop()
        if type(inner) is dict:
            count += len(inner)
            inner = inner.values()
        elif type(inner) is not list:
            continue
        left.extend([one for one in inner if type(one) in (dict, list)])
    return count


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any("\x00" in name or _has_nul(inner) for name, inner in value.items())
    return isinstance(value, list) and any(map(_has_nul, value))
