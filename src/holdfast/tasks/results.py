"""Results of handlers: written as JSON, and read again as the annotated return type."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import isroutine
from typing import Any
from weakref import WeakKeyDictionary

from holdfast.errors import PayloadError
from holdfast.tasks.annotations import resolve
from holdfast.tasks.payload import decode_any, encode
from holdfast.tasks.value_types import ValueType

#: The types that JSON keeps unchanged.
_SCALARS = frozenset({bool, int, float, str})


class ResultType:
    """A return type, which writes and reads results."""

    def __init__(self, annotation: Any) -> None:
        self._type = ValueType(annotation)

    def write(self, value: Any, what: str) -> str:
        """Return *value* as JSON. Raise `PayloadError` if `read` would return a different value."""
        text = encode(value, what=what)
        if type(value) not in _SCALARS:
            stored = decode_any(text)
            if stored != value or not self._type.keeps_plain:
                self._compare(value, stored, what)
        return text

    def read(self, stored: Any) -> Any:
        """Convert decoded JSON to the annotated type, or return it unchanged if it does not fit."""
        try:
            return self._type.read(stored)
        except Exception:  # a user's validator may raise anything
            return stored

    def _compare(self, value: Any, stored: Any, what: str) -> None:
        try:
            read_back = self._type.read(stored)
            if self._type.is_settled:
                return
        except Exception:  # it does not fit, and is read as JSON
            read_back = stored
        if lost := self._type.change(value, read_back, what):
            raise PayloadError(f"{lost}; annotate the return type, or return plain JSON")


#: The result type of functions without an annotation.
ANYTHING = ResultType(Any)
_known: WeakKeyDictionary[Any, ResultType] = WeakKeyDictionary()


def returned_by(function: Callable[..., Any]) -> ResultType:
    """Return the result type of *function*, which may also be a partial, a method, a class or a callable."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, type):
        return ResultType(function)
    if not isroutine(function):
        function = type(function).__call__
    function = getattr(function, "__func__", function)  # of a method, which would keep its object alive
    if "return" not in getattr(function, "__annotations__", ()):
        return ANYTHING
    if function not in _known:
        _known[function] = ResultType(resolve(function).get("return", Any))
    return _known[function]
