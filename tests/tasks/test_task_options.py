"""What `@app.task`, `app.dependency` and `app.queue` are told wrongly is refused where it is written, in one line."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Every, Holdfast, Limits, Retention, Retry, UsageError
from holdfast.policies import (
    BreakerPolicy,
    BudgetPolicy,
    Limit,
    LimiterPolicy,
    Window,
    Windows,
    exponential,
    polynomial,
    table,
)

NO_NAME = [3, b"x", "", "a\0b", "x" * 501, ["x"]]
NO_SPAN = ["soon", -1, 0, "0s", [1], True, float("nan"), datetime(2026, 1, 1, tzinfo=UTC)]
WRONG: dict[str, list[Any]] = {
    "name": NO_NAME,
    "queue": [*NO_NAME, None],
    "retry": ["3", 3.5, True, 0, {"max_attempts": 3}, [1]],
    "timeout": NO_SPAN,
    "lease": NO_SPAN,
    "depends_on": NO_NAME,
    "execute": ["fast", 3, [], "thread"],
    "max_crashes": ["3", 0, -1, 2.5, None, True],
    "store_result": ["no", 1, None],
    "deadline": NO_SPAN,
    "dedupe": ["yes", 1, None],
    "dedupe_scope": ["everyone", 3, None],
    "dedupe_for": ["x", -1, []],
    "start_within": NO_SPAN,
    "retention": ["7d", 3, Retention(events=timedelta(days=7))],
    "stuck_after": NO_SPAN,
    "stuck_action": ["kill", 3, []],
    "version": ["1", 0, 1.5, None, True],
    "rules": [3, "x", [3], None, {"a": 1}],
    "limits": [3, {"concurrency": 2}, Limit(concurrency=2)],
    "cost": ["x", -1, float("nan"), None, True],
    "extra": [3, ["price"], {"price": 2}],
    "topic": [3, ""],
    "encode": [3, "json"],
    "again_after": ["x", None, 0],
}


@pytest.fixture
def app() -> Holdfast:
    return Holdfast("memory://")


@pytest.mark.parametrize(("option", "value"), [(name, value) for name in WRONG for value in WRONG[name]])
def test_a_wrong_option_of_a_task_is_named_in_one_line(app: Holdfast, option: str, value: Any) -> None:  # E47
    async def ship() -> None: ...

    with pytest.raises(UsageError) as refused:
        app.task(**{option: value})(ship)
    said = str(refused.value)
    assert option in said or "ship is an async function" in said
    assert "\n" not in said
    assert len(said) < 300
    assert app.tasks == {}


def test_what_a_task_may_say_is_kept_as_it_was_meant(app: Holdfast) -> None:
    rule = lambda error: None  # noqa: E731

    send = app.task(
        name="mail", queue="post", retry=3, timeout="1m", lease=30, depends_on="smtp", max_crashes=1, store_result=False,
        deadline=timedelta(hours=1), dedupe_for=0, start_within="5m", stuck_after=None, stuck_action="retry", version=2,
        rules=[rule], limits=Limits(concurrency=2), cost=0, execute="process",
    )(at_the_top)  # fmt: skip
    policy = send.policy
    assert (send.name, policy.queue, policy.depends_on, policy.execute) == ("mail", "post", "smtp", "process")
    assert (policy.retry.max_attempts, policy.max_crashes, policy.version) == (3, 1, 2)
    spans = [policy.timeout, policy.lease, policy.deadline, policy.start_within]
    assert spans == [timedelta(seconds=60), timedelta(seconds=30), timedelta(hours=1), timedelta(minutes=5)]
    assert (policy.dedupe_for, policy.stuck_after, policy.stuck_action) == (timedelta(), None, "retry")
    assert (policy.store_result, policy.rules, policy.cost) == (False, (rule,), 0)


def test_what_is_no_function_cannot_be_a_task(app: Holdfast) -> None:
    def yields() -> Iterator[int]:
        yield 1

    async def yields_too() -> AsyncIterator[int]:
        yield 1

    wrong: list[tuple[Any, str]] = [
        ("mail", "'mail' is not a function; write @app.task above one"),
        (None, "None is not a function"),
        (functools.partial(print, 1), "has no name; give its task one: name="),
        (int, "int is a class; a task is a function"),
        (yields, "yields; a task returns its result"),
        (yields_too, "yields; a task returns its result"),
    ]
    for function, why in wrong:
        with pytest.raises(UsageError, match=why):
            app.task(function)
    assert app.tasks == {}
    assert app.task(name="say")(functools.partial(print, 1)).name == "say"


WRONG_OF_A_DEPENDENCY: dict[str, list[Any]] = {
    "name": NO_NAME,
    "breaker": [{}, {"window": 20}, True, False, LimiterPolicy()],
    "limiter": [{}, 3, BreakerPolicy()],
    "budget": [{}, False],
    "probe": [3, "nonsense", "ftp://gateway/health", "http://"],
}


@pytest.mark.parametrize(
    ("option", "value"),
    [(name, value) for name, values in WRONG_OF_A_DEPENDENCY.items() for value in values],
)
def test_a_wrong_option_of_a_dependency_is_named_in_one_line(
    app: Holdfast, option: str, value: Any
) -> None:  # E17
    given: dict[str, Any] = {"name": "gateway", option: value}
    with pytest.raises(UsageError, match=f"^{option} is ") as refused:
        app.dependency(**given)
    assert "\n" not in str(refused.value)
    assert app.runtime.declared.admission.dependencies == {}


def test_a_dependency_is_guarded_as_it_is_told(app: Holdfast) -> None:
    async def probe() -> bool:
        return True

    app.dependency("gateway", breaker=None, limiter=LimiterPolicy(), budget=BudgetPolicy(), probe=probe)
    assert app.runtime.declared.admission.dependencies["gateway"].breaker is None
    app.dependency("gateway", probe="https://gateway.example/health")
    assert app.runtime.declared.admission.dependencies["gateway"].breaker == BreakerPolicy()


@pytest.mark.parametrize(("name", "limits"), [(3, Limits()), ("", Limits()), ("mail", {}), ("mail", Limit())])
def test_wrong_limits_of_a_queue_are_refused(app: Holdfast, name: Any, limits: Any) -> None:
    with pytest.raises(UsageError):
        app.queue(name, limits)
    assert app.runtime.declared.admission.queues == {}


@pytest.mark.parametrize("attempts", [True, "3", 2.5, 0, 1001])
def test_attempts_are_a_whole_number(attempts: Any) -> None:
    with pytest.raises(UsageError, match="max_attempts is"):
        Retry(attempts)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("factor", value) for value in ("x", None, 0, True)),
        *(("backoff", value) for value in ("x", 3)),
        *(("only", value) for value in (3, ["x"], [int], ValueError)),
        *(("never", value) for value in ("x", [3])),
        *(("attempts_by_code", value) for value in (3, {"X": "y"}, {3: 1}, {"X": True})),
        ("windows", 3),
    ],
)
def test_a_wrong_part_of_a_retry_policy_is_named(option: str, value: Any) -> None:  # E11
    with pytest.raises(UsageError, match=option):
        Retry(**{option: value})


def test_curves_and_windows_of_the_wrong_kind_are_refused() -> None:  # E11
    wrong: list[Any] = [3, None, [], "5s", ["x"]]
    for delays in wrong:
        with pytest.raises(UsageError):
            table(delays)
    for number in wrong[:3]:
        with pytest.raises(UsageError):
            exponential("5s", number if number != 3 else 0.5)
        with pytest.raises(UsageError):
            polynomial("5s", number if number != 3 else -1)
    with pytest.raises(UsageError, match="days is 3"):
        Window(days=3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="allow is 3; it is a list of Window"):
        Windows(allow=3)  # type: ignore[arg-type]


def test_whatever_else_an_app_declares_wrongly_is_refused_in_one_line(app: Holdfast) -> None:  # E47
    async def ship(order: int = 1) -> None: ...

    told: Any = app
    task = app.task(ship)
    mistakes: dict[str, Any] = {
        "no event 3; there are: queued": lambda: told.on(3),
        "no event named; there are: queued": told.on,
        "a hook is 3; it is a function": lambda: told.on("failed")(3),
        "a middleware is 3": lambda: told.middleware(3),
        "a lifespan is 3": lambda: told.lifespan(3),
        "the topic of a message is a text, not a int": lambda: told.topic(3, to="memory://"),
        "the topic 'a.*cannot be printed": lambda: told.topic("a\0", to="memory://"),
        "the target of topic x is not an address": lambda: told.topic("x", to=3),
        "strict is 'no'; it is True or False": lambda: told.topic("x", to="memory://", strict="no"),
        "args is 3; it gives values by name": lambda: told.schedule(task, Every("5m"), args=3),
        "no schedule option when; there are: args": lambda: told.schedule(task, Every("5m"), when=3),
        "a schedule says when": lambda: told.schedule(task),
        "retention is '30d'; it is a Retention": lambda: Holdfast("memory://", retention="30d"),  # type: ignore[arg-type]
    }
    for why, mistake in mistakes.items():
        with pytest.raises(UsageError, match=why):
            mistake()
    assert (
        app.runtime.declared.topics,
        app.runtime.declared.schedules,
        app.runtime.declared.hooks,
        app.runtime.declared.middleware,
    ) == ({}, {}, [], [])
    Holdfast("memory://", retention=Retention(results="7d"))


@pytest.mark.parametrize("verb", ["apply_async", "defer", "delay", "kiq", "send", "send_task"])
def test_the_verb_of_another_library_is_answered_with_ours(verb: str) -> None:
    @Holdfast("memory://").task
    async def send_mail(to: str) -> None: ...

    with pytest.raises(AttributeError, match=rf"a task has no {verb}; use `await task.enqueue\(…\)`"):
        getattr(send_mail, verb)
    assert not hasattr(send_mail, "anything_else")


# -- which functions can be tasks ---------------------------------------------------------------------------------------
class Shop:
    """Methods of every kind."""

    async def ship(self, order: int) -> None: ...

    def pack(self, order: int) -> None: ...

    @classmethod
    def open(cls) -> None: ...

    @staticmethod
    def count(order: int) -> int:
        return order


def at_the_top(order: int) -> int:
    return order


@pytest.mark.parametrize("method", [Shop.ship, Shop.pack, Shop.__dict__["count"]])
def test_a_method_is_refused_where_it_is_decorated(method: Any) -> None:  # E36
    with pytest.raises(UsageError) as refused:
        Holdfast("memory://").task(method)
    assert str(refused.value) == (
        f"{method.__qualname__} is a method, and a worker has no object to call it on; a task is a function: write it at"
        " the top of the module"
    )


@pytest.mark.parametrize("function", [Shop().pack, Shop().ship, Shop.open, Shop.count])
def test_what_needs_no_object_any_more_is_no_method(function: Any) -> None:
    assert Holdfast("memory://").task(function).name == function.__name__


@pytest.mark.parametrize("asked", [{"timeout": "1m"}, {"execute": "process"}])
def test_what_a_child_process_could_not_find_is_refused_where_it_is_decorated(
    asked: dict[str, Any],
) -> None:  # E36 E41
    def nested(order: int) -> int:
        return order

    app = Holdfast("memory://")
    for function in (nested, lambda order: order, functools.partial(at_the_top, 3), Shop().pack):
        with pytest.raises(UsageError, match=r"^strange runs in a process") as refused:
            app.task(name="strange", **asked)(function)
        assert "it must be a function at the top of a module" in str(refused.value)
        assert ("as a plain def with a timeout does" in str(refused.value)) == ("timeout" in asked)
        app.task(name=f"{id(function)}", **asked | {"execute": "thread"})(function)  # the way out
    for number, found in enumerate((at_the_top, Shop.count)):
        assert app.task(name=f"found {number}", **asked)(found).policy.execute == "process"
