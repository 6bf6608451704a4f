"""What a function returns: written as JSON, and read again as the type that its annotation names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import isroutine
from typing import Any
from weakref import WeakKeyDictionary

from holdfast.engine.annotations import resolve
from holdfast.engine.payload import decode_any, encode
from holdfast.engine.value_types import ValueType
from holdfast.errors import PayloadError

#: What JSON keeps as it is.
_SCALARS = frozenset({bool, int, float, str})


class ResultType:
    """A type that functions return: how its values are written and read."""

    def __init__(self, annotation: Any) -> None:
        self._type = ValueType(annotation)

    def write(self, value: Any, what: str) -> str:
        """Return *value* as JSON; raise `PayloadError` when it would be another one after `read`."""
        text = encode(value, what=what)
        if type(value) not in _SCALARS:
            stored = decode_any(text)
            if stored != value or not self._type.keeps_plain:
                self._compare(value, stored, what)
        return text

    def read(self, stored: Any) -> Any:
        """Return decoded JSON as the annotated type; as it is where it does not fit, or does not fit any more."""
        try:
            return self._type.read(stored)
        except Exception:  # what a validator of the user's may raise is anything
            return stored

    def _compare(self, value: Any, stored: Any, what: str) -> None:
        try:
            found = self._type.read(stored)
            if self._type.is_settled:
                return
        except Exception:  # it does not fit, and is read as JSON
            found = stored
        if lost := self._type.change(value, found, what):
            raise PayloadError(f"{lost}; annotate the return type, or return plain JSON")


#: What a function without an annotation returns.
ANYTHING = ResultType(Any)
_known: WeakKeyDictionary[Any, ResultType] = WeakKeyDictionary()


def returned_by(function: Callable[..., Any]) -> ResultType:
    """Return the result type of *function*, which may be a partial, a method, a class or an object that can be called."""
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
