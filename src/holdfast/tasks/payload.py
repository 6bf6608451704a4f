"""Arguments as JSON: checked against the task's signature when enqueued, and decoded to its types when run.

A payload is a JSON object of arguments by name, so that people can read it, search it and send it over HTTP.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from math import isfinite
from operator import attrgetter
from typing import Any

import msgspec

from holdfast.errors import PayloadError, UsageError
from holdfast.tasks.annotations import decode_foreign, encode_foreign, resolve
from holdfast.tasks.value_types import ValueType

#: How many calls are encoded at a time.
_TOGETHER = 1000
#: Types that are neither a mapping nor a tuple, so that a value of them is the only argument.
_LONE = frozenset({int, str, float, bool, bytes, list, type(None)})
#: How deeply lists and objects may be nested.
DEEPEST = 100
_UNSEEN = "import the type that annotates the argument outside of `if TYPE_CHECKING:`"
_ENCODER_LIMIT_HINT = "store large data elsewhere and pass a reference"


class UnreadablePayload(PayloadError):
    """The stored arguments do not fit the task any more, so the job cannot run, now or later."""


encoder = msgspec.json.Encoder(enc_hook=encode_foreign)
decode_any = msgspec.json.Decoder().decode


def encode(value: Any, *, what: str) -> str:
    """Return *value* as JSON text. *what* names it in errors.

    Raises:
        PayloadError: It cannot be stored as JSON.
    """
    try:
        text = encoder.encode(value).decode()
        if "null" in text and _has_not_a_number(msgspec.to_builtins(value, enc_hook=encode_foreign)):
            raise ValueError("it holds NaN or Infinity, which JSON does not have; use None")
        if _may_be_deep(text) and is_deep(decode_any(text)):
            raise ValueError(f"it is nested more than {DEEPEST} deep")
    except (TypeError, ValueError, NotImplementedError, OverflowError, RecursionError, UnicodeError) as error:
        raise PayloadError(f"{what} cannot be stored as JSON: {error}") from error
    return text


def _has_not_a_number(value: Any) -> bool:
    """Return whether *value* contains a NaN or an infinity, which the encoder would write as null."""
    match value:
        case float():
            return not isfinite(value)
        case dict():
            return any(map(_has_not_a_number, value.values()))
        case list() | tuple():
            return any(map(_has_not_a_number, value))
    return False


def _may_be_deep(text: str) -> bool:
    return len(text) > 2 * DEEPEST and text.count("[") + text.count("{") > DEEPEST


def is_deep(value: Any) -> bool:
    """Return whether decoded JSON is nested more than `DEEPEST` levels deep.

    Many readers recurse for each level, and one row that they cannot read would break every list that
    contains it.
    """
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [one for one in level if type(one) is list or type(one) is dict]
        if not level:
            return False
        level = [inner for one in level for inner in (one.values() if type(one) is dict else one)]
    return True


def size(text: str) -> int:
    """Return the number of bytes of *text* in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


class Signature:
    """The signature of a task's function: binds and checks calls, and unpacks payloads."""

    def __init__(self, function: Callable[..., Any], task: str) -> None:
        self.task = task
        hints = resolve(function)
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):  # a type or function that is written in C
            raise UsageError(
                f"the arguments of {task} cannot be read; wrap it in a function of your own"
            ) from None
        self.takes_job = "job" in parameters
        self._places: list[str] = []  # parameters that may be given by position
        self._by_name: set[str] = set()  # parameters that may be given by name
        self._names: dict[str, None] = {}  # all parameters, in the order of the function
        self._required: set[str] = set()
        self._defaults: dict[str, Any] = {}
        self._unseen: set[str] = set()  # parameters whose annotation cannot be resolved
        self.texts: set[str] = set()  #: parameters that take only text
        self._rest: str | None = None  # *args
        self._extra: str | None = None  # **kwargs
        fields: list[Any] = []
        for name, parameter in parameters.items():
            if name == "job":
                continue
            kind = hints.get(name, Any)
            if name not in hints and parameter.annotation is not parameter.empty:
                self._unseen.add(name)
            if parameter.kind is parameter.VAR_POSITIONAL:
                self._rest, kind = name, list[kind]  # type: ignore[valid-type]
                self._defaults[name] = []
            elif parameter.kind is parameter.VAR_KEYWORD:
                self._extra, kind = name, dict[str, kind]  # type: ignore[valid-type]
                self._defaults[name] = {}
            elif parameter.default is parameter.empty:
                self._required.add(name)
            else:
                self._defaults[name] = parameter.default
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                self._places.append(name)
            if kind in (str, str | None):
                self.texts.add(name)
            self._names[name] = None
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                self._by_name.add(name)
            # A default is not stored: the function's own applies when the job runs.
            fields.append((name, kind, msgspec.UNSET))
        fields = [field if field[0] not in self._required else field[:2] for field in fields]
        kinds = {field[0]: ValueType(field[1]) for field in fields}
        self._doubtful = [(name, kind) for name, kind in kinds.items() if not kind.is_settled]
        self._decoder = _decoder(task, [(name, kinds[name].kind, *default) for name, _, *default in fields])
        self._plain = self._rest is None and self._extra is None
        self._all_by_place = self._plain and self._required <= set(self._places)
        self._width = len(self._places)
        self._callable = frozenset(self._names) | ({"job"} if self.takes_job else set())

    @property
    def names(self) -> Collection[str]:
        """The names of the arguments, in the order of the function."""
        return self._names.keys()

    def takes(self, names: Iterable[str]) -> bool:
        """Return whether a call may have arguments with all these names."""
        return self._extra is not None or self._callable.issuperset(names)

    @property
    def required(self) -> list[str]:
        """The names of the arguments without a default, in the order of the function."""
        return [name for name in self._names if name in self._required]

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name.

        Raises:
            UsageError: The arguments do not fit the signature.
        """
        bound = dict(zip(self._places, args, strict=False))
        if len(args) > self._width:
            if self._rest is None:
                raise UsageError(
                    f"{self.task}() takes {self._width} positional arguments but {len(args)} were given"
                )
            bound[self._rest] = list(args[self._width :])
        if kwargs:
            self._bind_names(bound, kwargs)
        if not self._required <= bound.keys():
            missing = ", ".join(name for name in self.required if name not in bound)
            raise UsageError(
                f"{self.task}() needs the argument {missing}; it takes: {', '.join(self._names)}"
            )
        return bound

    def _bind_names(self, bound: dict[str, Any], kwargs: Mapping[str, Any]) -> None:
        for name, value in kwargs.items():
            if name in self._by_name:
                if name in bound:
                    raise UsageError(f"{self.task}() got two values for the argument {name}")
                bound[name] = value
            elif name == "job" and self.takes_job:
                raise UsageError(f"{self.task}() gets its job from the worker; leave out job=")
            elif self._extra is not None:
                bound.setdefault(self._extra, {})[name] = value
            elif name in self._names and name != self._rest:
                raise UsageError(f"{self.task}() takes the argument {name} by position only")
            else:
                known = ", ".join(self._names) or "none"
                raise UsageError(f"{self.task}() has no argument {name}; it takes: {known}")

    def dump(self, arguments: Mapping[str, Any], limit: int) -> str:
        """Return the payload of a call, checked by decoding it as a worker will.

        Raises:
            PayloadError: It is larger than *limit* bytes, or would not arrive as it was sent.
        """
        text = self._text(arguments, limit)
        try:
            struct = self._decoder.decode(text)
        except (msgspec.ValidationError, ValueError, RecursionError) as error:
            raise PayloadError(
                f"the arguments of {self.task}() do not fit its signature ({error})"
            ) from error
        return self._checked(arguments, struct, text)

    def check_payload(self, arguments: Mapping[str, Any], limit: int) -> str:
        """Return the payload of *arguments* that are JSON data already, as the payload of a job is.

        Raises:
            PayloadError: It is larger than *limit* bytes, or does not fit the signature.
        """
        text = self._text(arguments, limit)
        self.load(text)
        return text

    def _text(self, arguments: Mapping[str, Any], limit: int) -> str:
        text = encode(arguments, what=f"the arguments of {self.task}()")
        if size(text) > limit:
            raise PayloadError(
                f"the arguments of {self.task}() take {size(text):,} bytes, the limit is {limit:,}; {_ENCODER_LIMIT_HINT}"
            )
        return text

    def _checked(self, arguments: Mapping[str, Any], struct: Any, text: str) -> str:
        """Return *text*, or raise `PayloadError` if an argument would not arrive as it was sent."""
        for name, kind in self._doubtful:
            value, found = arguments.get(name, msgspec.UNSET), getattr(struct, name)
            if value != found:
                lost = kind.change(value, found, f"the argument {name}")
                if lost is not None:
                    way = _UNSEEN if name in self._unseen else "annotate the argument with exactly this type"
                    raise PayloadError(f"{self.task}() cannot be enqueued: {lost}; {way}, or pass plain JSON")
        return text

    def dump_many(self, calls: Iterable[Any], limit: int) -> list[str]:
        """Return the payloads of many calls. See `holdfast.tasks.task.Call` for the forms of a call."""
        if not isinstance(calls, Iterable) or isinstance(calls, str | bytes | Mapping):
            raise UsageError(f"enqueue_many({calls!r:.60}): give it a list of calls of {self.task}()")
        calls, texts = iter(calls), list[str]()
        while batch := [self._bind_call(call) for call in islice(calls, _TOGETHER)]:
            texts += self._dump_together(batch, limit)
        return texts

    def _bind_call(self, call: Any) -> dict[str, Any]:
        kind = type(call)
        if self._all_by_place:
            if kind is tuple and len(call) == self._width:
                return dict(zip(self._places, call, strict=True))
            if self._width == 1 and kind in _LONE:
                return {self._places[0]: call}
        if isinstance(call, Mapping):
            return self.bind((), call)
        return self.bind(call if isinstance(call, tuple) else (call,), {})

    def _dump_together(self, calls: list[dict[str, Any]], limit: int) -> list[str]:
        """Return the payload of each call.

        If nothing is wrong, one call encodes them all and one decodes them all.
        """
        try:
            data = encoder.encode_lines(calls)
            structs = self._decoder.decode_lines(data)
            texts = data.decode().split("\n")[:-1]
        except Exception:
            structs, texts = [], []
        if len(texts) != len(calls):  # something is wrong, or a raw JSON argument contains a line break
            return [self.dump(arguments, limit) for arguments in calls]
        # `dump` raises the proper error, and can tell a null that was NaN from one that was None.
        all_arrive = self._all_arrive(calls, structs)
        return [
            self.dump(arguments, limit)
            if "null" in text or size(text) > limit or _may_be_deep(text)
            else text
            if all_arrive
            else self._checked(arguments, struct, text)
            for arguments, struct, text in zip(calls, structs, texts, strict=True)
        ]

    def named(self, payload: str) -> dict[str, Any]:
        """Return the arguments of *payload* by name, in their types, with the defaults of missing ones."""
        struct = self._decoder.decode(payload)
        given = {name: getattr(struct, name) for name in self._names}
        return self._defaults | {name: value for name, value in given.items() if value is not msgspec.UNSET}

    def _all_arrive(self, calls: list[dict[str, Any]], structs: list[Any]) -> bool:
        """Return whether all arguments equal what was decoded, with one fast list comparison per name."""
        return all(
            [call.get(name, msgspec.UNSET) for call in calls] == list(map(attrgetter(name), structs))
            for name, _ in self._doubtful
        )

    def load(self, payload: str) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and keyword arguments of *payload*.

        Raises:
            UnreadablePayload: It does not fit the signature any more.
        """
        try:
            struct = self._decoder.decode(payload)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise UnreadablePayload(
                f"the stored arguments of {self.task}() cannot be read: {error}"
            ) from error
        args: list[Any] = []
        for name in self._places:
            value = getattr(struct, name)
            if value is msgspec.UNSET:
                break
            args.append(value)
        place = len(args)
        if self._plain and place == len(self._names):
            return args, {}
        kwargs = {
            name: value
            for name in self._names.keys() - self._places[:place]
            if (value := getattr(struct, name)) is not msgspec.UNSET and name not in (self._rest, self._extra)
        }
        if self._rest is not None and (rest := getattr(struct, self._rest)) is not msgspec.UNSET:
            args.extend(rest)
        if self._extra is not None and (extra := getattr(struct, self._extra)) is not msgspec.UNSET:
            kwargs.update(extra)
        return args, kwargs


def _decoder(task: str, fields: list[Any]) -> msgspec.json.Decoder[Any]:
    """Return a decoder for these fields."""
    name = "".join(letter if letter.isalnum() else "_" for letter in task) or "task"
    struct = msgspec.defstruct(f"{name}_arguments", fields, kw_only=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(struct, dec_hook=decode_foreign)
