"""Annotations as msgspec can read them: unions it does not know, and models of pydantic, are decoded here.

msgspec refuses unions such as `Card | Iban` or `date | datetime`, because JSON does not say which of them a value is.
Here each member is tried, and the first that would be written in the same way is taken. Whether that is the one that was
sent is checked when a value is stored.
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

#: Types that name exactly what a value comes back as, and those that do so with what is inside of them.
_LEAVES = frozenset(
    {NoneType, bool, int, float, str, bytes, bytearray, datetime, date, time, timedelta, Decimal, UUID}
)
_CONTAINERS = frozenset({list, set, frozenset, dict, tuple, Sequence, Mapping})


def encode_foreign(value: Any) -> Any:
    """Return what msgspec can encode instead of *value*."""
    dump = getattr(value, "model_dump", None)  # pydantic
    if callable(dump):
        return dump(mode="json")
    raise NotImplementedError(f"it holds a {type(value).__name__}; use texts, numbers, lists and dicts")


def decode_foreign(kind: Any, value: Any) -> Any:
    """Return *value* as a *kind* that msgspec does not know."""
    if isinstance(kind, _Reader):
        return kind.read(value)
    validate = getattr(kind, "model_validate", None)  # pydantic
    return validate(value) if callable(validate) else value


def _keep_foreign(kind: Any, value: Any) -> Any:
    """Return *value* as a *kind*, and unchanged where a union has a member for it."""
    return kind.keep(value) if isinstance(kind, _Reader) else decode_foreign(kind, value)


def convert(value: Any, kind: Any, hook: Callable[[Any, Any], Any] = decode_foreign) -> Any:
    """Return *value*, of JSON or of Python, as a *kind*; raise an exception when it does not fit."""
    return msgspec.convert(value, kind, str_keys=True, dec_hook=hook)


def as_annotated(value: Any, kind: Any) -> Any:
    """Return the value that a function annotated with *kind* expects when it is given *value*: a list for a tuple, where
    it asks for a list. A value that does not fit is returned as it is."""
    try:
        return convert(value, kind, _keep_foreign)
    except Exception:  # what a validator of the user's may raise is anything
        return value


def resolve(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of *function*, without those that name what only a type checker can see."""
    try:
        return get_type_hints(function)
    except Exception:
        names = getattr(function, "__annotations__", {})
        return {name: found for name in names if (found := _resolve_one(function, name)) is not None}


def _resolve_one(function: Callable[..., Any], name: str) -> Any:
    alone = type("alone", (), {"__annotations__": {name: function.__annotations__[name]}})
    try:
        return get_type_hints(alone, getattr(function, "__globals__", None))[name]
    except Exception:  # whatever evaluating it raises
        return None


def is_settled(kind: Any) -> bool:
    """Return whether what fits *kind* can come back as nothing else."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        inner = tuple(one for one in inner if one is not NoneType)
        return len(inner) == 1 and is_settled(inner[0])
    if origin is not None:
        return origin in _CONTAINERS and all(one is ... or is_settled(one) for one in inner)
    return isinstance(kind, type) and (kind in _LEAVES or issubclass(kind, Enum))


def readable(kind: Any) -> Any:
    """Return *kind* as msgspec can read it; `Any` where there is no way."""
    try:
        found = _readable(kind)
    except (TypeError, ValueError, NameError, RecursionError):
        return Any
    return found if is_known(found) else Any


def is_known(kind: Any) -> bool:
    """Return whether msgspec can read *kind*."""
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
    """The class of types that exist to be decoded: `read` makes the value, which need not be an instance."""

    read: Callable[[Any], Any]
    keep: Callable[[Any], Any]

    def __instancecheck__(cls, value: object) -> bool:
        return True


def _reader(kind: Any, read: Callable[[Any], Any], keep: Callable[[Any], Any]) -> Any:
    return _Reader(str(kind), (), {"read": staticmethod(read), "keep": staticmethod(keep)})


def _one_of(kind: Any, members: tuple[Any, ...]) -> Any:
    """Return a type for a union. `str` comes first: any text is one, so what a text becomes depends on no luck."""
    kinds = [_readable(one) for one in sorted(members, key=lambda one: one is not str)]

    def fitting(value: Any, hook: Callable[[Any, Any], Any]) -> list[Any]:
        found = []
        for one in kinds:
            try:
                found.append(convert(value, one, hook))
            except Exception:  # what a validator of the user's may raise is anything
                continue
        if not found:
            raise ValueError(f"it is none of {kind}")
        return found

    def read(value: Any) -> Any:
        found = fitting(value, decode_foreign)
        plain = _plain(value)
        return next((one for one in found if _plain(one) == plain), found[0])

    def keep(value: Any) -> Any:
        for one in fitting(value, _keep_foreign):
            if type(one) is type(value) and one == value:
                return one
        return read(value)

    return _reader(kind, read, keep)


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True, enc_hook=encode_foreign)


def _dataclass(kind: Any) -> Any:
    """Return a type for a dataclass with a field that msgspec does not know."""
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    fields = [(name, _readable(hints[name]), msgspec.UNSET) for name in names]
    shape = msgspec.defstruct(f"{kind.__name__}_fields", fields, kw_only=True)

    def make(value: Any, hook: Callable[[Any, Any], Any]) -> Any:
        if type(value) is kind:
            return value
        found = convert(value, shape, hook)
        given = {name: getattr(found, name) for name in names}
        return kind(**{name: one for name, one in given.items() if one is not msgspec.UNSET})

    return _reader(kind, lambda value: make(value, decode_foreign), lambda value: make(value, _keep_foreign))
