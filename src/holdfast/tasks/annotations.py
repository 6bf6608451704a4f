"""Make annotations readable for msgspec: other unions and pydantic models are decoded here.

msgspec refuses unions such as `Card | Iban` or `date | datetime`, because JSON does not say which member a
value is. Here each member is tried, and the first that encodes to the same JSON is taken. A check when a
value is stored ensures that this is the member that was sent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

#: Types whose values always come back as the same type, and containers that do so if their elements do.
_LEAVES = frozenset(
    {NoneType, bool, int, float, str, bytes, bytearray, datetime, date, time, timedelta, Decimal, UUID}
)
_CONTAINERS = frozenset({list, set, frozenset, dict, tuple, Sequence, Mapping})


def encode_foreign(value: Any) -> Any:
    """Return a form of *value* that msgspec can encode. Raise `NotImplementedError` if there is none."""
    dump = getattr(value, "model_dump", None)  # pydantic
    if callable(dump):
        return dump(mode="json")
    raise NotImplementedError(f"it holds a {type(value).__name__}; use texts, numbers, lists and dicts")


def decode_foreign(kind: Any, value: Any) -> Any:
    """Convert *value* to a *kind* that msgspec cannot decode itself."""
    if isinstance(kind, _Reader):
        return kind.read(value)
    validate = getattr(kind, "model_validate", None)  # pydantic
    return validate(value) if callable(validate) else value


def _keep_foreign(kind: Any, value: Any) -> Any:
    """Convert *value* to *kind*, but keep it unchanged if *kind* is a union with a member of its type."""
    return kind.keep(value) if isinstance(kind, _Reader) else decode_foreign(kind, value)


def convert(value: Any, kind: Any, hook: Callable[[Any, Any], Any] = decode_foreign) -> Any:
    """Convert *value*, decoded JSON or a Python object, to *kind*. Raises an exception if it does not fit."""
    return msgspec.convert(value, kind, str_keys=True, dec_hook=hook)


def as_annotated(value: Any, kind: Any) -> Any:
    """Convert *value* to what a function annotated with *kind* expects, for example a tuple to a list.

    A value that does not fit is returned unchanged.
    """
    try:
        return convert(value, kind, _keep_foreign)
    except Exception:  # a user's validator may raise anything
        return value


def resolve(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of *function*, except those with names that exist only for type checkers."""
    try:
        return get_type_hints(function)
    except Exception:
        names = getattr(function, "__annotations__", {})
        return {name: fits for name in names if (fits := _resolve_one(function, name)) is not None}


def _resolve_one(function: Callable[..., Any], name: str) -> Any:
    alone = type("alone", (), {"__annotations__": {name: function.__annotations__[name]}})
    try:
        return get_type_hints(alone, getattr(function, "__globals__", None))[name]
    except Exception:  # evaluating it may raise anything
        return None


def is_settled(kind: Any) -> bool:
    """Return whether every value of *kind* comes back as the same value, so that no comparison is needed."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        inner = tuple(one for one in inner if one is not NoneType)
        return len(inner) == 1 and is_settled(inner[0])
    if origin is not None:
        return origin in _CONTAINERS and all(one is ... or is_settled(one) for one in inner)
    return isinstance(kind, type) and (kind in _LEAVES or issubclass(kind, Enum))


def readable(kind: Any) -> Any:
    """Return a type with which msgspec can decode values of *kind*, or `Any` if there is none."""
    try:
        fits = _readable(kind)
    except (TypeError, ValueError, NameError, RecursionError):
        return Any
    return fits if is_known(fits) else Any


def is_known(kind: Any) -> bool:
    """Return whether msgspec can decode values of *kind*."""
    try:
        msgspec.json.Decoder(kind, dec_hook=decode_foreign)
    except (TypeError, ValueError, NameError):
        return False
    return True


def _readable(kind: Any) -> Any:
    if kind is ... or is_known(kind):
        return kind
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _one_of(kind, inner)
    if origin is Annotated:
        return _readable(inner[0])
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind)
    if origin is None or not inner:
        raise TypeError(kind)
    return origin[tuple(map(_readable, inner))]


class _Reader(type):
    """A metaclass for types that msgspec passes to `decode_foreign`.

    `read` makes the value, which is no instance.
    """

    read: Callable[[Any], Any]
    keep: Callable[[Any], Any]

    def __instancecheck__(cls, value: object) -> bool:
        return True


def _reader(kind: Any, read: Callable[[Any], Any], keep: Callable[[Any], Any]) -> Any:
    return _Reader(str(kind), (), {"read": staticmethod(read), "keep": staticmethod(keep)})


def _one_of(kind: Any, members: tuple[Any, ...]) -> Any:
    """Return a readable type for a union.

    `str` is tried first, so that the decoding of a text is deterministic.
    """
    kinds = [_readable(one) for one in sorted(members, key=lambda one: one is not str)]

    def fitting(value: Any, hook: Callable[[Any, Any], Any]) -> list[Any]:
        fits = []
        for one in kinds:
            try:
                fits.append(convert(value, one, hook))
            except Exception:  # a user's validator may raise anything
                continue
        if not fits:
            raise ValueError(f"it is none of {kind}")
        return fits

    def read(value: Any) -> Any:
        fits = fitting(value, decode_foreign)
        plain = _plain(value)
        return next((one for one in fits if _plain(one) == plain), fits[0])

    def keep(value: Any) -> Any:
        for one in fitting(value, _keep_foreign):
            if type(one) is type(value) and one == value:
                return one
        return read(value)

    return _reader(kind, read, keep)


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True, enc_hook=encode_foreign)


def _dataclass(kind: Any) -> Any:
    """Return a readable type for a dataclass with a field that msgspec cannot decode."""
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    fields = [(name, _readable(hints[name]), msgspec.UNSET) for name in names]
    shape = msgspec.defstruct(f"{kind.__name__}_fields", fields, kw_only=True)

    def make(value: Any, hook: Callable[[Any, Any], Any]) -> Any:
        if type(value) is kind:
            return value
        fits = convert(value, shape, hook)
        given = {name: getattr(fits, name) for name in names}
        return kind(**{name: one for name, one in given.items() if one is not msgspec.UNSET})

    return _reader(kind, lambda value: make(value, decode_foreign), lambda value: make(value, _keep_foreign))
