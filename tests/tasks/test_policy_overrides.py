"""Overrides over the policy file: their keys, the values that are in force, what is refused, and how they are written as TOML."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Limits, Retry
from holdfast.errors import UsageError
from holdfast.policies import BreakerPolicy
from holdfast.resilience.guard import DependencyPolicy
from holdfast.tasks.policy_file.overrides import (
    Override,
    checked_value,
    overlapping,
    read_key,
    to_toml,
)
from holdfast.tasks.policy_file.reading import Document
from holdfast.tasks.policy_file.tables import dotted
from tests.extensions.visits import Visits

_versions = count(1)


def override(key: str, value: Any, by: str = "ann", reason: str = "") -> Override:
    return Override(
        key=dotted(read_key(key)),
        value=value,
        version=next(_versions),
        by=by,
        reason=reason,
        set_at=datetime(2026, 11, 19, tzinfo=UTC),
    )


@pytest.fixture
def app(tmp_path: Path) -> Holdfast:
    file = tmp_path / "holdfast.toml"
    file.write_text(
        "[tasks.t]\nbackoff = { fixed = '5s' }\nmax_attempts = 3\n[dependencies.bank]\nbreaker = { votes = 4 }\n"
    )
    app = Holdfast("memory://", policies=file)

    @app.task(queue="q", retry=Retry(2, jitter="none"), limits=Limits(concurrency=5))
    async def t() -> None: ...

    app.dependency("bank", breaker=BreakerPolicy(threshold=0.9))
    return app


def put(app: Holdfast, *overrides: Override) -> Any:
    reloader = app.runtime.declared.reloader
    reloader.override(app.tasks, overrides, version=next(_versions))
    return reloader


# -- what is in force -----------------------------------------------------------------------------------------------------
def test_an_override_wins_over_the_file_and_the_file_over_the_code(app: Holdfast) -> None:  # E10
    task = app.tasks["t"]
    assert task.policy.retry.max_attempts == 3
    put(app, override("tasks.t.max_attempts", 7), override("tasks.t.limits.rate", "100/min"))
    assert task.policy.retry.max_attempts == task.plain_spec.max_attempts == 7
    assert task.policy.limits == Limits(concurrency=5, rate="100/min")
    assert task.policy.retry.backoff.delay(1, 0.5) == timedelta(seconds=5)
    put(app)
    assert task.policy.retry.max_attempts == 3
    assert task.policy.limits == Limits(concurrency=5)


def test_an_override_changes_one_key_of_a_dependency_and_leaves_the_others(app: Holdfast) -> None:  # E10 E20
    put(app, override("dependencies.bank.breaker.cooldown", "2m"))
    found = app.runtime.declared.admission.dependency("bank")
    assert found == DependencyPolicy(breaker=BreakerPolicy(cooldown="2m", threshold=0.9, votes=4))


def test_owners_quotas_and_priorities_are_overridden_by_name(app: Holdfast) -> None:  # E10 E18
    put(
        app,
        override("quotas.gold.per_day", 9),
        override('owners."user:7".quota', "gold"),
        override("priorities.high", 20),
    )
    policies = app.runtime.declared.policies
    assert policies.quota_of("user:7").per_day == 9
    assert policies.priorities["high"] == 20


def test_overrides_stay_when_the_file_changes(app: Holdfast) -> None:  # E10
    reloader = put(app, override("tasks.t.max_attempts", 7))
    reloader.path.write_text("[tasks.t]\nmax_attempts = 4\ntimeout = '9s'\n")
    assert reloader.reload(app.tasks, asked=True)
    policy = app.tasks["t"].policy
    assert (policy.retry.max_attempts, policy.timeout) == (7, timedelta(seconds=9))


def test_an_override_of_a_task_that_is_not_declared_is_kept_and_changes_nothing(app: Holdfast) -> None:  # E10
    reloader = put(app, override("tasks.other.max_attempts", 7), override("tasks.t.max_attempts", 8))
    assert reloader.refused == {}
    assert app.tasks["t"].policy.retry.max_attempts == 8


def test_overrides_that_do_not_fit_are_left_out_and_all_others_are_in_force(app: Holdfast) -> None:  # E10
    good = [override(f"tasks.other{number}.max_attempts", 5) for number in range(20)]
    bad = [override("tasks.t.max_attempts", 0), override("owners.a.quota", "silver")]
    reloader = put(app, *good[:7], bad[0], *good[7:], bad[1], override("tasks.t.timeout", "3s"))
    assert set(reloader.refused) == {"tasks.t.max_attempts", "owners.a.quota"}
    assert len(reloader.policies.tasks) == 21
    assert app.tasks["t"].policy.timeout == timedelta(seconds=3)
    assert app.tasks["t"].policy.retry.max_attempts == 3


def test_a_changed_file_may_leave_no_room_for_an_override(app: Holdfast) -> None:  # E10
    reloader = put(app, override("tasks.t.limits.concurrency", 9), override("tasks.t.max_attempts", 7))
    reloader.path.write_text("[queues.q.limits]\nconcurrency = 6\n")
    assert reloader.reload(app.tasks, asked=True)
    assert "more than its whole queue" in reloader.refused["tasks.t.limits.concurrency"]
    assert app.tasks["t"].policy.retry.max_attempts == 7


# -- what is refused ------------------------------------------------------------------------------------------------------
WRONG = [
    ("tasks.t.max_attempts", 0, "override by ann: tasks.t.max_attempts: max_attempts is 0; it is a whole number, 1 to 1000"),
    ("tasks.t.max_attemps", 3, "override by ann: tasks.t.max_attemps: there is no such key here; did you mean max_attempts?"),
    ("tasks.t.timeout", "soon", "override by ann: tasks.t.timeout: 'soon' is not a duration"),
    ("queues.q.limits", 5, "override by ann: queues.q.limits: it is 5; it is a table"),
    ("dependencies.bank.breaker.threshold", 2, "override by ann: dependencies.bank.breaker.threshold: threshold is 2"),
    ("tasks.t.max_attempts.x", 2, "override by ann: tasks.t.max_attempts.x: tasks.t.max_attempts has no keys here"),
    ("priorities.low", 9, "override by ann: priorities.low: normal (4) weighs less than low (9)"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "said"), WRONG)
def test_a_wrong_override_is_refused_with_the_line_of_the_file(
    app: Holdfast, key: str, value: Any, said: str
) -> None:  # E10
    with pytest.raises(UsageError) as refused:
        app.runtime.declared.reloader.read(app.tasks, [override(key, value)])
    assert str(refused.value).startswith(said)


def test_an_override_that_contradicts_the_file_is_refused_with_the_line_in_the_file(
    app: Holdfast,
) -> None:  # E10
    reloader = app.runtime.declared.reloader
    with pytest.raises(UsageError) as refused:
        reloader.read(app.tasks, [override("tasks.t.backoff.cap", "1s")])
    assert str(refused.value).startswith(
        f"{reloader.path}:2: tasks.t.backoff.fixed: it goes above cap (1s); raise cap or lower fixed"
    )


def test_an_option_of_an_extension_cannot_be_overridden(tmp_path: Path) -> None:  # E10
    app = Holdfast("memory://", extensions=[Visits()])
    [option] = app.runtime.declared.extensions.task_options
    with pytest.raises(UsageError, match="option of an extension, which cannot be overridden"):
        app.runtime.declared.reloader.read(app.tasks, [override(f"tasks.t.{option}", 1)])


def test_the_document_of_the_file_stays_as_it_was(app: Holdfast) -> None:  # E10
    reloader = app.runtime.declared.reloader
    before = repr(reloader.file)
    put(app, override("tasks.t.backoff.fixed", "9s"), override("dependencies.bank.breaker.votes", 1))
    assert repr(reloader.file) == before


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("tasks.convert.max_attempts", ("tasks", "convert", "max_attempts")),
        ('owners."user:7".quota', ("owners", "user:7", "quota")),
        ("owners.'a.b'.weight", ("owners", "a.b", "weight")),
        ('tasks."täglich \\"x\\"".cost', ("tasks", 'täglich "x"', "cost")),
        ("priorities.high", ("priorities", "high")),
    ],
)
def test_a_key_is_written_as_in_a_policy_file(text: str, path: tuple[str, ...]) -> None:  # E10
    assert read_key(text) == path
    assert read_key(dotted(path)) == path


@pytest.mark.parametrize(
    "text",
    [
        "", "tasks", "tasks.t", "priorities", "tasks..x", ".tasks.t.x", "tasks.t.x = 0 #", "tasks.t.x\ny", "tasks t x",
        "[tasks.t]", "plugins.gates", "schedules.x.y", 'tasks."t', "tasks.t.x # y", "a" * 501, "tasks." * 80, "tasks.t.\ud800",
        'tasks."\\x".y', 5, None,
    ],
)  # fmt: skip
def test_what_is_no_key_is_refused_in_one_line(text: Any) -> None:  # E10
    with pytest.raises(UsageError) as refused:
        read_key(text)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


class Odd:
    pass


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [None, Odd(), float("nan"), float("inf"), 2**63, "x" * 4001, ["x" * 3000, "x" * 3000], "\ud800", {1: 2}, {"\ud800": 1}, nested(5000),
     datetime(2026, 1, 1, tzinfo=UTC)],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_cannot_be_written_in_a_file_is_refused(value: Any) -> None:  # E10
    with pytest.raises(UsageError) as refused:
        checked_value("tasks.t.x", value)
    assert len(str(refused.value)) < 250


def test_keys_above_and_below_each_other_overlap() -> None:  # E10
    whole, part = override("tasks.t.backoff", {"fixed": "5s"}), override("tasks.t.backoff.cap", "1m")
    assert overlapping(whole.path, [part]) is part
    assert overlapping(part.path, [whole]) is whole
    assert overlapping(part.path, [part, override("tasks.t.backoffs", 1)]) is None


# -- as TOML --------------------------------------------------------------------------------------------------------------
def test_overrides_are_exported_as_a_file_that_says_the_same(app: Holdfast) -> None:  # E10
    overrides = [
        override("priorities.high", 9),
        override('owners."user:\\"7\\"".quota', "default", reason='as agreed # "today" ¶'),
        override("tasks.t.backoff", {"table": ["5s", "\x7f\\"], "jitter": "20%"}, by="bob"),
        override("tasks.t.cost", 2.5),
        override("tasks.t.deadline", False),
        override("dependencies.bank.breaker.votes", 1),
        override("tasks.u.max_attempts", 4),
    ]
    text = to_toml(overrides)
    assert tomllib.loads(text) == {
        "tasks": {
            "t": {"backoff": {"table": ["5s", "\x7f\\"], "jitter": "20%"}, "cost": 2.5, "deadline": False},
            "u": {"max_attempts": 4},
        },
        "dependencies": {"bank": {"breaker": {"votes": 1}}},
        "owners": {'user:"7"': {"quota": "default"}},
        "priorities": {"high": 9},
    }
    assert text.startswith('[tasks.t]\nbackoff = { table = ["5s", ')
    assert 'quota = "default"  # ann: as agreed # "today" ¶' in text
    assert to_toml([]) == ""
    assert Document().values == {}
