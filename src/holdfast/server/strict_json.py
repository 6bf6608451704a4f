"""Strict JSON: anything that two parsers could read differently is refused, quickly even if the body is large."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from holdfast.server.problems import Problem
from holdfast.tasks.payload import DEEPEST, is_deep

#: The most lists and objects in one body. Each is a Python object of its own, so a million bytes of them cost a second.
MOST = 50_000

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
#: A string, closed or not. An unclosed one extends to the end, so that no search begins again at its next quote.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
#: After an even number of backslashes, so that the next one is an escape. A raw NUL is not JSON.
_ESCAPED_COLON = re.compile(rb"(?<!\\)(?:\\\\)*\\u003[aA]")
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def read(body: bytes) -> Any:
    """Return the value of *body*.

    Raises `Problem` for anything but UTF-8 and RFC 8259, and for what the RFC allows but parsers read differently: a name that
    occurs twice, numbers without end, half a character (400), NUL in a text (422).
    """
    brackets = _brackets(body)
    if brackets > MOST and _brackets(_STRING.sub(b"", body)) > MOST:
        raise Problem("BAD_JSON", f"the body holds more than {MOST:,} lists and objects; send it in pieces")
    try:
        value = _decode(body)
        has_duplicates = b":" in body and _colons(body) != _encode(value).count(b":")
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
    if has_duplicates:
        raise Problem("BAD_JSON", "an object in the body has the same name more than once")
    if b"\\u0000" in body and _NUL.search(body):
        raise Problem("INVALID", "a text in the body contains NUL, which cannot be stored; leave it out")
    return value


def _brackets(body: bytes) -> int:
    return body.count(b"[") + body.count(b"{")


def _colons(body: bytes) -> int:
    """Return how many colons *body* has when it is encoded again. If a name occurs twice, one is lost with its colon.

    A walk through the value would find the same, but takes half a second for a million bytes of small objects.
    """
    escaped = len(_ESCAPED_COLON.findall(body)) if b"\\u003" in body else 0
    return body.count(b":") + escaped
