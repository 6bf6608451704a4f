"""A value that goes through a store comes back as the same type with the same content, or it is refused in one sentence.

One table of types is tried as arguments, results and results of steps, annotated and not, on every store.
"""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel, SecretStr

from holdfast import THIS_JOB, Holdfast, Job, JobFailed, PayloadError
from tests.apps import SOON, Database, new_app, work

pytestmark = pytest.mark.anyio


@dataclass
class Card:
    number: str
    valid: date


@dataclass(frozen=True)
class Iban:
    iban: str


@dataclass
class Twin:
    iban: str


@dataclass(eq=False)
class Thing:
    size: Decimal


@dataclass
class Order:
    pay: Card | Iban
    more: list[Card | Iban] = field(default_factory=list)


@dataclass
class Loose:
    inside: Any


@dataclass(frozen=True)
class LongIban(Iban):
    bank: str


class Cat(BaseModel):
    lives: int
    born: date | None = None


class Dog(BaseModel):
    name: str
    friends: list[Cat] = []


class Login(BaseModel):
    password: SecretStr


class Point(msgspec.Struct):
    x: int
    y: float = 0.0


class Circle(msgspec.Struct, tag=True):
    r: int


class Square(msgspec.Struct, tag=True):
    r: int


class Pair(NamedTuple):
    left: int
    right: str


class Row(TypedDict):
    n: int
    at: datetime


class Colour(Enum):
    RED = "red"


class Mode(StrEnum):
    FAST = "fast"


class Level(IntEnum):
    HIGH = 3


NOON = datetime(2026, 5, 6, 12, 0, 0, 7, tzinfo=UTC)
CARD, IBAN = Card("4111", date(2030, 1, 1)), Iban("DE02")

#: An annotation and a value of it that must come back as it is.
EXACT: dict[str, tuple[Any, Any]] = {
    "none": (None, None),
    "bool": (bool, True),
    "int": (int, -5),
    "big int": (int, 2**70),
    "float": (float, 1.0),
    "tiny float": (float, 5e-324),
    "text": (str, "Grüße \N{SNOWMAN} \x00\n"),
    "list": (list[int], [1, 2]),
    "dict": (dict[str, Any], {"a": [1, {"b": None}], "c": 1.5}),
    "int or float": (int | float, 2.0),
    "text or none": (str | None, None),
    "aware datetime": (datetime, NOON),
    "naive datetime": (datetime, NOON.replace(tzinfo=None)),
    "date": (date, date(2026, 1, 2)),
    "time": (time, time(1, 2, 3)),
    "span": (timedelta, timedelta(days=-1, microseconds=7)),
    "decimal": (Decimal, Decimal("1.10")),
    "uuid": (UUID, UUID(int=7)),
    "bytes": (bytes, b"\x00\xff"),
    "bytearray": (bytearray, bytearray(b"ab")),
    "set": (set[int], {1, 2}),
    "frozenset": (frozenset[str], frozenset({"a"})),
    "tuple": (tuple[int, str], (1, "a")),
    "long tuple": (tuple[int, ...], (1, 2, 3)),
    "bare tuple": (tuple, (1, 2)),
    "named tuple": (Pair, Pair(1, "r")),
    "enum": (Colour, Colour.RED),
    "text enum": (Mode, Mode.FAST),
    "int enum": (Level, Level.HIGH),
    "literal": (Literal["a", "b"], "b"),
    "dataclass": (Card, CARD),
    "frozen dataclass": (Iban, IBAN),
    "dataclass without ==": (Thing, Thing(Decimal("0.10"))),
    "struct": (Point, Point(1, 2.5)),
    "tagged structs": (Circle | Square, Square(3)),
    "model": (Cat, Cat(lives=9, born=date(2020, 1, 1))),
    "model with models": (Dog, Dog(name="Rex", friends=[Cat(lives=1)])),
    "typed dict": (Row, {"n": 1, "at": NOON}),
    "int keys": (dict[int, str], {1: "a", 20: "b"}),
    "uuid keys": (dict[UUID, int], {UUID(int=1): 1}),
    "date keys": (dict[date, list[int]], {date(2026, 1, 1): [1]}),
    "enum keys": (dict[Mode, int], {Mode.FAST: 1}),
    "dict of decimals": (dict[str, Decimal], {"a": Decimal("1.0")}),
    "list of dataclasses": (list[Card], [CARD, CARD]),
    "one of two dataclasses": (Card | Iban, CARD),
    "the other of two dataclasses": (Card | Iban, IBAN),
    "one of two models": (Cat | Dog, Cat(lives=7)),
    "the other of two models": (Cat | Dog, Dog(name="Rex")),
    "model or none": (Cat | Dog | None, None),
    "model or int": (Cat | int, 3),
    "model, not an int": (Cat | int, Cat(lives=3)),
    "model or dataclass": (Iban | Cat, Cat(lives=2)),
    "list of a union": (list[Card | Iban], [IBAN, CARD]),
    "dict of a union": (dict[int, Cat | Dog], {4: Dog(name="a"), 5: Cat(lives=2)}),
    "optional list of a union": (list[Cat | Dog] | None, [Cat(lives=1)]),
    "dataclass with a union": (Order, Order(IBAN, [CARD, IBAN])),
    "list of dataclasses with a union": (list[Order], [Order(CARD)]),
    "date or datetime": (date | datetime, NOON),
    "datetime or date": (datetime | date, date(2026, 1, 2)),
    "text or bytes": (str | bytes, "YWJj"),
    "text or uuid": (UUID | str, str(UUID(int=9))),
    "set or list": (set[int] | list[int], {3}),
    "two tuples": (tuple[int, int] | tuple[int, int, int], (1, 2, 3)),
    "decimal or float": (Decimal | float, 0.5),
}
#: An annotation, what is given, and what it becomes because the annotation says so.
CONVERTED: dict[str, tuple[Any, Any, Any]] = {
    "tuple for a list": (list[int], (1, 2), [1, 2]),
    "set for a list": (list[int], {1}, [1]),
    "int for a float": (float, 1, 1.0),
    "text enum for a text": (str, Mode.FAST, "fast"),
    "text enums for texts": (list[str], [Mode.FAST], ["fast"]),
    "ordered dict": (dict[str, int], OrderedDict(a=1), {"a": 1}),
    "default dict": (dict[str, int], defaultdict(int, a=1), {"a": 1}),
    "text for a datetime": (datetime, "2026-05-06T12:00:00.000007Z", NOON),
    "dict for a dataclass": (Iban, {"iban": "DE02"}, IBAN),
    "dict for a union": (Card | Iban, {"iban": "DE02"}, IBAN),
    "dict for a model": (Cat, {"lives": 1}, Cat(lives=1)),
    "text keys for int keys": (dict[int, str], {"1": "a"}, {1: "a"}),
    "uuid for a text": (str, UUID(int=1), str(UUID(int=1))),
    "base64 for bytes": (bytes, "AP8=", b"\x00\xff"),
}
#: An annotation, and a value that cannot come back as it is.
REFUSED: dict[str, tuple[Any, Any]] = {
    "subclass of a dataclass": (Iban, LongIban("DE02", "x")),
    "the second of twins": (Iban | Twin, Twin("DE02")),
    "bytes or text": (str | bytes, b"abc"),
    "uuid or text": (UUID | str, UUID(int=9)),
    "list or set": (set[int] | list[int], [3]),
    "hidden password": (Login, Login(password=SecretStr("hunter2"))),
    "decimal in a dict": (dict[str, Any], {"a": {"b": [Decimal(1)]}}),
    "tuple in a list": (list, [(1, 2)]),
    "set for object": (object, {1}),
    "dataclass in an open field": (Loose, Loose(IBAN)),
}


def is_plain(value: Any) -> bool:
    """Whether JSON keeps it: read again, it is equal. Members of text and int enums are equal to what they become."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except TypeError:
        return False


def is_identical(one: Any, other: Any) -> bool:
    same = one == other or (isinstance(one, Thing) and vars(one) == vars(other))
    return type(one) is type(other) and same


def annotated(function: Callable[..., Any], **kinds: Any) -> Callable[..., Any]:
    function.__annotations__ = {
        **{name: kind for name, kind in kinds.items() if name != "result"},
        **({"return": kinds["result"]} if "result" in kinds else {}),
    }
    return function


def receiver(got: dict[str, Any], name: str, **kinds: Any) -> Callable[..., Any]:
    async def receive(value):  # type: ignore[no-untyped-def]
        got[name] = value

    return annotated(receive, **kinds)


def giver(value: Any, **kinds: Any) -> Callable[..., Any]:
    async def give():  # type: ignore[no-untyped-def]
        return value

    return annotated(give, **kinds)


def differences(wanted: dict[str, Any], got: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    assert wanted.keys() == got.keys()
    return {name: (wanted[name], got[name]) for name in wanted if not is_identical(wanted[name], got[name])}


@pytest.fixture
def app(store_url: str) -> Holdfast:
    if not store_url.startswith("memory"):
        Database(store_url).prepare()
    return new_app(store_url)


async def test_annotated_arguments_arrive_as_they_were_sent(app: Holdfast) -> None:  # E47
    wanted = {name: value for name, (_, value) in EXACT.items()} | {
        n: to for n, (_, _, to) in CONVERTED.items()
    }
    got: dict[str, Any] = {}
    async with app:
        for name, (kind, value, *_) in (EXACT | CONVERTED).items():
            task = app.task(name=name)(receiver(got, name, value=kind))
            await task.enqueue(value)
            await task.enqueue_many([{"value": value}])
        await work(app)
    assert differences(wanted, got) == {}


async def test_arguments_without_an_annotation_arrive_as_they_were_sent_or_are_refused(
    app: Holdfast,
) -> None:  # E47
    got: dict[str, Any] = {}
    refused: dict[str, str] = {}
    async with app:
        for name, (_, value) in EXACT.items():
            task = app.task(name=name)(receiver(got, name))
            try:
                await task.enqueue(value)
            except PayloadError as error:
                refused[name] = str(error)
                with pytest.raises(PayloadError, match="annotate the argument"):
                    await task.enqueue_many([{"value": value}])
        await work(app)
    plain = {name: json.loads(json.dumps(value)) for name, (_, value) in EXACT.items() if is_plain(value)}
    assert differences(plain, got) == {}
    assert refused.keys() == EXACT.keys() - plain.keys()
    assert refused["decimal"] == (
        "decimal() cannot be enqueued: the argument value is a Decimal and would become a str;"
        " annotate the argument with exactly this type, or pass plain JSON"
    )
    assert "a key of the argument value is an int and would become a str" in refused["int keys"]
    for sentence in refused.values():
        assert "annotate the argument" in sentence


async def test_arguments_that_an_annotation_cannot_bring_back_are_refused(app: Holdfast) -> None:  # E47
    async with app:
        for name, (kind, value) in REFUSED.items():
            task = app.task(name=name)(receiver({}, name, value=kind))
            with pytest.raises(PayloadError, match="annotate the argument"):
                await task.enqueue(value)
            with pytest.raises(PayloadError):
                task.enqueue_many_sync([{"value": value}])
        assert (await app.jobs.list()).rows == []


async def test_results_come_back_as_they_were_returned(app: Holdfast, store_url: str) -> None:  # E47
    handles: dict[str, Any] = {}
    wanted = {name: value for name, (_, value) in EXACT.items()} | {
        n: to for n, (_, _, to) in CONVERTED.items()
    }
    async with app:
        for name, (kind, value, *_) in (EXACT | CONVERTED).items():
            handles[name] = await app.task(name=name)(giver(value, result=kind)).enqueue()
        await work(app)
        assert differences(wanted, {name: await handle.result() for name, handle in handles.items()}) == {}
        assert (
            differences(wanted, {n: await app.jobs.result(handle.id) for n, handle in handles.items()}) == {}
        )
    if not store_url.startswith("memory"):  # a store of its own for plain calls would be another one
        assert (
            differences(wanted, {n: app.sync.jobs.result(handle.id) for n, handle in handles.items()}) == {}
        )
        app.sync.close()


async def test_results_that_would_change_fail_the_attempt(app: Holdfast) -> None:  # E47
    handles: dict[str, Any] = {}
    changing = REFUSED | {name: (Any, value) for name, (_, value) in EXACT.items() if not is_plain(value)}
    async with app:
        for name, (kind, value) in changing.items():
            handles[name] = await app.task(name=name, retry=SOON)(giver(value, result=kind)).enqueue()
        plain = await app.task(name="plain")(giver({"a": [1, None]})).enqueue()
        await work(app)
        for handle in handles.values():
            with pytest.raises(JobFailed) as failed:
                await handle.result()
            assert failed.value.code == "RESULT_INVALID"
            [attempt] = await app.jobs.attempts(handle.id)
            assert attempt.failure is not None
            assert "annotate the return type" in attempt.failure.detail
        assert await plain.result() == {"a": [1, None]}


async def test_results_of_steps_are_the_same_in_every_attempt(app: Holdfast) -> None:  # E40 E47
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    wanted = {name: value for name, (_, value) in EXACT.items()} | {
        n: to for n, (_, _, to) in CONVERTED.items()
    }

    @app.task(retry=SOON)
    async def walk(*, job: Job = THIS_JOB) -> None:
        for name, (kind, value, *_) in (EXACT | CONVERTED).items():
            got = await job.step(name, giver(value, result=kind))
            (first if job.attempt == 1 else second)[name] = got
        if job.attempt == 1:
            raise OSError("again")

    async with app:
        await walk.enqueue()
        await work(app)
    assert differences(wanted, first) == {}
    assert differences(wanted, second) == {}


async def test_results_of_steps_that_would_change_are_refused(app: Holdfast) -> None:  # E47
    sentences: dict[str, str] = {}
    changing = REFUSED | {name: (Any, value) for name, (_, value) in EXACT.items() if not is_plain(value)}

    @app.task
    async def walk(*, job: Job = THIS_JOB) -> None:
        for name, (kind, value) in changing.items():
            try:
                await job.step(name, giver(value, result=kind))
            except PayloadError as error:
                sentences[name] = str(error)

    async with app:
        await walk.enqueue()
        await work(app)
    assert sentences.keys() == changing.keys()
    assert all("annotate the return type" in sentence for sentence in sentences.values())


async def test_a_job_ended_in_a_transaction_keeps_the_type_of_its_result(app: Holdfast) -> None:  # E47
    refused: list[str] = []

    @app.task
    async def pay(*, job: Job = THIS_JOB) -> Card | Iban:
        with pytest.raises(PayloadError) as error:
            async with job.transaction(result={1, 2}):
                pass
        refused.append(str(error.value))
        async with job.transaction(result=IBAN):
            pass
        return IBAN

    async with app:
        handle = await pay.enqueue()
        await work(app)
        assert await handle.result() == IBAN
    assert refused == [
        "the result is a set and would become a list; annotate the return type, or return plain JSON"
    ]


async def test_jobs_that_were_enqueued_before_still_run(db: Database) -> None:  # E47
    """What older versions stored for a union or for an argument without an annotation."""
    app = new_app(db.url)
    got: dict[str, Any] = {}
    old = {
        "union": (Card | Iban, '{"value":{"iban":"DE02"}}', IBAN),
        "unknown": (Card | Iban, '{"value":{"iban":"DE02","note":"x"}}', IBAN),
        "no annotation": (Any, '{"value":"1.10"}', "1.10"),
        "int keys": (Any, '{"value":{"1":2}}', {"1": 2}),
    }
    async with app:
        for name, (kind, payload, _) in old.items():
            task = app.task(name=name)(receiver(got, name, value=kind))
            handle = await task.enqueue(IBAN if name in ("union", "unknown") else "")
            db.corrupt(handle.id, payload)
        await work(app)
    assert differences({name: value for name, (_, _, value) in old.items()}, got) == {}
