"""Arguments as JSON: every kind of signature, there and back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from holdfast.errors import PayloadError, UsageError
from holdfast.tasks.payload import Signature, encode, size
from holdfast.tasks.results import returned_by

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]

LIMIT = 1_000_000


class Address(msgspec.Struct):
    street: str
    number: int = 1


@dataclass(frozen=True)
class Item:
    sku: str
    price: Decimal


class Colour(Enum):
    RED = "red"


class Customer(BaseModel):
    name: str
    born: date | None = None


NOBODY = Customer(name="nobody")


class Odd:
    """A type that nobody knows how to write."""


def there_and_back(function: Any, *args: Any, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    signature = Signature(function, function.__name__)
    return signature.load(signature.dump(signature.bind(args, kwargs), LIMIT))


def test_values_arrive_as_the_types_the_signature_names() -> None:  # E47
    def ship(
        to: Address, items: list[Item], when: datetime, colour: Colour, who: Customer, key: UUID, raw: bytes
    ) -> None: ...

    args = (
        Address("High Street"),
        [Item("a", Decimal("1.10"))],
        datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        Colour.RED,
        Customer(name="Ann", born=date(1990, 1, 1)),
        UUID(int=7),
        b"\x00\xff",
    )
    assert there_and_back(ship, *args) == (list(args), {})


def test_spans_sets_tuples_and_dicts_with_int_keys_arrive_as_they_went() -> None:  # E47
    def f(a: timedelta, b: set[int], c: tuple[int, str], d: dict[int, list[str]], e: int | None) -> None: ...

    args = (timedelta(seconds=90), {1, 2}, (1, "a"), {1: ["x"]}, None)
    assert there_and_back(f, *args) == (list(args), {})


def test_a_default_is_not_stored_so_the_functions_own_applies_when_it_runs() -> None:  # E47
    def f(a: int, b: int = 2, *, c: int = 3) -> None: ...

    signature = Signature(f, "f")
    assert signature.dump(signature.bind((1,), {}), LIMIT) == '{"a":1}'
    assert there_and_back(f, 1) == ([1], {})
    assert there_and_back(f, 1, c=5) == ([1], {"c": 5})
    assert there_and_back(f, c=5, a=1) == ([1], {"c": 5})


def test_rest_and_extra_arguments_come_back_in_their_places() -> None:  # E47
    def f(a: int, b: int = 2, *rest: float, c: str, **extra: bool) -> None: ...

    assert there_and_back(f, 1, 2, 3.5, 4, c="x", d=True) == ([1, 2, 3.5, 4.0], {"c": "x", "d": True})
    assert there_and_back(f, 1, c="x") == ([1], {"c": "x"})


def test_extra_arguments_may_have_the_names_of_rest_and_extra() -> None:  # E47
    def f(*args: int, **kwargs: int) -> None: ...

    assert there_and_back(f, 1, 2, args=3, kwargs=4) == ([1, 2], {"args": 3, "kwargs": 4})


def test_the_types_of_rest_and_extra_are_checked() -> None:  # E47
    def f(*rest: int, **extra: bool) -> None: ...

    with pytest.raises(PayloadError):
        there_and_back(f, 1, "two")
    with pytest.raises(PayloadError):
        there_and_back(f, a="yes")


def test_a_place_is_a_place_and_a_name_is_a_name() -> None:  # E47
    def f(a: int, b: int = 2, /, c: int = 3) -> None: ...

    def g(a: int, b: int = 2, /, **extra: int) -> None: ...

    assert there_and_back(f, 1, c=4) == ([1], {"c": 4})
    with pytest.raises(UsageError, match=r"f\(\) takes the argument b by position only"):
        there_and_back(f, 1, b=5)
    assert there_and_back(g, 1, b=5, a=6) == ([1], {"b": 5, "a": 6})  # as Python has it


def test_the_job_is_given_by_the_worker_and_never_stored() -> None:  # E47
    def f(a: int, job: object) -> None: ...

    def g(job: object, **extra: int) -> None: ...

    assert there_and_back(f, 1) == ([1], {})
    for function in (f, g):
        with pytest.raises(UsageError, match="leave out job="):
            Signature(function, "f").bind((), {"job": 1})


def test_a_model_with_a_default_arrives_as_a_model() -> None:  # E47
    def f(when: datetime, who: Customer = NOBODY, maybe: Customer | None = None) -> None: ...

    when, ann = datetime(2026, 1, 1, tzinfo=UTC), Customer(name="Ann")
    assert there_and_back(f, when, ann, ann) == ([when, ann, ann], {})
    assert there_and_back(f, when, maybe=None) == ([when], {"maybe": None})


def test_a_type_that_only_a_checker_sees_leaves_the_others_checked() -> None:  # E47
    def f(when: datetime, what: Unknown, price: Decimal) -> None: ...

    when = datetime(2026, 1, 1, tzinfo=UTC)
    assert there_and_back(f, when, "x", Decimal("1.0")) == ([when, "x", Decimal("1.0")], {})
    with pytest.raises(
        PayloadError, match="import the type that annotates the argument outside of `if TYPE_CHECKING:`"
    ):
        there_and_back(f, when, Decimal(1), Decimal(1))


def test_a_type_that_cannot_be_checked_leaves_the_others_checked() -> None:  # E47
    def f(when: datetime, odd: Odd | int | list[Odd] = 1) -> None: ...

    when = datetime(2026, 1, 1, tzinfo=UTC)
    assert there_and_back(f, when, 5) == ([when, 5], {})
    with pytest.raises(PayloadError):
        there_and_back(f, "yesterday")


def test_a_name_that_only_the_type_checker_knows_is_taken_as_it_comes() -> None:  # E47
    def f(a: Unknown) -> None: ...

    assert there_and_back(f, {"x": 1}) == ([{"x": 1}], {})


def test_wrong_calls_say_what_is_wrong() -> None:  # E47
    def f(a: int, b: int = 2) -> None: ...

    for args, kwargs, words in (
        ((), {}, "f() needs the argument a; it takes: a, b"),
        ((1, 2, 3), {}, "f() takes 2 positional arguments but 3 were given"),
        ((1,), {"a": 1}, "f() got two values for the argument a"),
        ((1,), {"c": 1}, "f() has no argument c; it takes: a, b"),
    ):
        with pytest.raises(UsageError) as refused:
            Signature(f, "f").bind(args, kwargs)
        assert str(refused.value) == words
    with pytest.raises(
        PayloadError, match=r"do not fit its signature \(Expected `int`, got `str` - at `\$\.a`\)"
    ):
        there_and_back(f, "one")


@pytest.mark.parametrize("payload", ["", "null", "[1]", "{}", '{"a":"x"}', '{"a":1,"z":1}', '{"a":1', "\0"])
def test_a_payload_that_does_not_fit_is_a_payload_error(payload: str) -> None:  # E47
    def f(a: int) -> None: ...

    with pytest.raises(PayloadError, match=r"the stored arguments of f\(\) cannot be read"):
        Signature(f, "f").load(payload)


def test_not_a_number_is_refused_wherever_it_hides() -> None:  # E47
    nan = float("nan")
    for value in (nan, -float("inf"), [1, {"a": (nan,)}], Address("x", nan), {"n": None, "x": nan}):  # type: ignore[arg-type]
        with pytest.raises(PayloadError, match="NaN or Infinity"):
            encode(value, what="it")
    assert encode({"n": None, "s": "null NaN"}, what="it") == '{"n":null,"s":"null NaN"}'


def test_a_cycle_is_refused() -> None:  # E47
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(PayloadError):
        encode(cycle, what="it")


def test_the_size_is_that_of_the_bytes() -> None:  # E47
    assert [size(text) for text in ("abc", "é", "😀")] == [3, 2, 4]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values, st.lists(json_values, max_size=3), st.dictionaries(st.text(), json_values, max_size=3))
def test_whatever_json_can_hold_comes_back_the_same(
    a: Any, rest: list[Any], extra: dict[str, Any]
) -> None:  # E47
    def f(a: Any, *rest: Any, **extra: Any) -> None: ...

    extra = {name: value for name, value in extra.items() if name not in ("a", "job")}
    assert there_and_back(f, a, *rest, **extra) == ([a, *rest], extra)


def test_results_are_read_as_the_return_type_or_as_they_are() -> None:  # E47
    def f() -> Item: ...  # type: ignore[empty-body]

    read = returned_by(f).read
    assert read({"sku": "a", "price": "1.5"}) == Item("a", Decimal("1.5"))
    assert read({"old": "shape"}) == {"old": "shape"}
