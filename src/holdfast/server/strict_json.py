"""JSON as senders must write it: what two readers could understand differently is refused, quickly, whatever its size."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from holdfast.engine.payload import DEEPEST, is_deep
from holdfast.server.problems import Problem

#: Lists and objects in one body: Python makes each by itself and looks after it, so a million bytes of them cost a second.
MOST = 50_000

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
#: A string, closed or not: one that is not closed reaches to the end, and is not looked for again from its next quote on.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
#: Behind an even number of backslashes, so that it is one. Written raw, NUL is no JSON at all.
_ESCAPED_COLON = re.compile(rb"(?<!\\)(?:\\\\)*\\u003[aA]")
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def read(body: bytes) -> Any:
    """The value of *body*. A problem for anything but UTF-8 and RFC 8259, and for what that allows and readers differ in:
    a name given twice, numbers without end, half a character (400), NUL in a text (422)."""
    brackets = _brackets(body)
    if brackets > MOST and _brackets(_STRING.sub(b"", body)) > MOST:
        raise Problem("BAD_JSON", f"the body holds more than {MOST:,} lists and objects; send it in pieces")
    try:
        value = _decode(body)
        is_twice = b":" in body and _colons(body) != _encode(value).count(b":")
    except msgspec.ValidationError:
        raise Problem("BAD_JSON", "a number in the body is too large to be read exactly") from None
    except RecursionError:
        raise Problem("BAD_JSON", "the body is nested too deeply") from None
    except UnicodeDecodeError:
        raise Problem("BAD_JSON", "the body is not proper UTF-8") from None
    except msgspec.DecodeError as error:
        raise Problem("BAD_JSON", str(error)) from None
    if brackets > DEEPEST and is_deep(value):
        raise Problem("BAD_JSON", f"the body is nested more than {DEEPEST} deep")
    if is_twice:
        raise Problem("BAD_JSON", "an object in the body has the same name twice")
    if b"\\u0000" in body and _NUL.search(body):
        raise Problem("INVALID", "a text in the body holds NUL, which cannot be stored")
    return value


def _brackets(body: bytes) -> int:
    return body.count(b"[") + body.count(b"{")


def _colons(body: bytes) -> int:
    """As many as *body* has when it is written again, unless names were lost: each takes its colon with it. A walk through
    the value tells the same, and takes half a second where a million bytes are many small objects."""
    escaped = len(_ESCAPED_COLON.findall(body)) if b"\\u003" in body else 0
    return body.count(b":") + escaped
