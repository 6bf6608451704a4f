"""What is in force: the value of each key, where it comes from, and what it would be without its override."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Limits, Retry
from holdfast.policies import BreakerPolicy
from holdfast.tasks.policy_file.in_force import PolicyValue

pytestmark = pytest.mark.anyio

FILE = """[tasks.t]
backoff = { fixed = "5s" }
timeout = "9s"
[tasks.t.limits]
rate = "5/s"
[queues.q]
max_attempts = 8
classifiers = []
[tasks.u]
preset = "grading"
[dependencies.bank.breaker]
votes = 4
[owners."user:7"]
weight = 2
[plugins]
gates = []
"""


@pytest.fixture
def app(tmp_path: Path) -> Holdfast:
    file = tmp_path / "holdfast.toml"
    file.write_text(FILE)
    app = Holdfast("memory://", policies=file)

    @app.task(queue="q", retry=Retry(2, jitter="none"), limits=Limits(concurrency=5))
    async def t() -> None: ...

    @app.task(queue="q")
    async def u() -> None: ...

    app.dependency("bank", breaker=BreakerPolicy(threshold=0.9), limiter=None)
    return app


async def found(app: Holdfast, under: str | None = None) -> dict[str, PolicyValue]:
    return {one.key: one for one in await app.policies.in_force(under)}


def facts(value: PolicyValue) -> tuple[Any, str, str | None]:
    line = None if value.place is None else value.place.rpartition(":")[2]
    return value.value, value.source, line


async def test_each_value_says_whether_it_is_of_the_code_or_of_which_line_of_the_file(
    app: Holdfast,
) -> None:  # E10
    rows = await found(app)
    assert facts(rows["tasks.t.backoff"]) == (["5s"] * 5, "file", "2")
    assert facts(rows["tasks.t.backoff.cap"]) == ("1h", "code", None)
    assert facts(rows["tasks.t.timeout"]) == ("9s", "file", "3")
    assert facts(rows["tasks.t.limits.rate"]) == ("5/1s", "file", "5")
    assert facts(rows["tasks.t.limits.concurrency"]) == (5, "code", None)
    assert facts(rows["tasks.t.max_attempts"]) == (8, "file", "7")
    assert facts(rows["tasks.u.max_attempts"]) == (4, "file", "10")
    assert facts(rows["tasks.u.cost"]) == (1.0, "code", None)
    assert facts(rows["queues.q.classifiers"]) == ([], "file", "8")
    assert facts(rows["dependencies.bank.breaker.votes"]) == (4, "file", "12")
    assert facts(rows["dependencies.bank.breaker.threshold"]) == (0.9, "code", None)
    assert facts(rows["dependencies.bank.limiter"]) == (False, "code", None)
    assert facts(rows['owners."user:7".weight']) == (2, "file", "14")
    assert facts(rows["priorities.high"]) == (8, "code", None)
    assert facts(rows["plugins.gates"]) == ([], "file", "16")
    assert "tasks.t.deadline" not in rows
    assert not any(one.override or one.unknown or one.refused for one in rows.values())


async def test_an_overridden_value_says_who_why_and_what_it_would_be_without(app: Holdfast) -> None:  # E10
    made = await app.policies.set("tasks.t.timeout", "1m", by="ann", reason="slow", lasts="1h")
    [row] = await app.policies.in_force("tasks.t.timeout")
    assert (row.value, row.source, row.place, row.without, row.override) == (
        "1m",
        "override",
        None,
        "9s",
        made,
    )
    await app.policies.set("tasks.t.limits.concurrency", 3)
    await app.policies.set("tasks.t.deadline", "1h")
    await app.policies.set("dependencies.bank.breaker", False)
    await app.policies.set("owners.new.weight", 5)
    rows = await found(app)
    assert (rows["tasks.t.limits.concurrency"].value, rows["tasks.t.limits.concurrency"].without) == (3, 5)
    assert rows["tasks.t.limits.rate"].source == "file"
    assert (rows["tasks.t.deadline"].value, rows["tasks.t.deadline"].without) == ("1h", None)
    breaker = rows["dependencies.bank.breaker"]
    assert (breaker.value, breaker.without["votes"], breaker.without["threshold"]) == (False, 4, 0.9)
    assert "dependencies.bank.breaker.votes" not in rows
    assert rows["dependencies.bank.limiter"].source == "code"
    assert (rows["owners.new.weight"].value, rows["owners.new.weight"].without) == (5, None)


async def test_the_override_of_a_queue_is_shown_where_its_tasks_have_no_value_of_their_own(
    app: Holdfast,
) -> None:  # E10
    made = await app.policies.set("queues.q.max_attempts", 9)
    rows = await found(app)
    assert (rows["tasks.t.max_attempts"].value, rows["tasks.t.max_attempts"].without) == (9, 8)
    assert rows["tasks.t.max_attempts"].override == rows["queues.q.max_attempts"].override == made
    assert rows["tasks.u.max_attempts"].source == "file"  # its preset wins over its queue


async def test_part_of_an_overridden_table_is_overridden_and_so_is_the_whole(app: Holdfast) -> None:  # E10
    await app.policies.set("tasks.t.backoff.cap", "5s")
    rows = await found(app, "tasks.t")
    assert (rows["tasks.t.backoff.cap"].value, rows["tasks.t.backoff.cap"].without) == ("5s", "1h")
    assert rows["tasks.t.backoff"].source == "override"
    await app.policies.unset("tasks.t.backoff.cap")
    await app.policies.set("tasks.t.backoff", {"base": "1s", "cap": "2s", "jitter": "none"})
    rows = await found(app, "tasks.t")
    assert (rows["tasks.t.backoff"].value[:3], rows["tasks.t.backoff"].without[:1]) == (
        ["1s", "2s", "2s"],
        ["5s"],
    )
    assert (rows["tasks.t.backoff.cap"].value, rows["tasks.t.backoff.cap"].source) == ("2s", "override")
    assert all(key.startswith("tasks.t.") for key in rows)


async def test_an_override_of_a_task_that_is_not_declared_is_shown_as_unknown(app: Holdfast) -> None:  # E10
    await app.policies.set("tasks.nobody.max_attempts", 5)
    row = (await found(app))["tasks.nobody.max_attempts"]
    assert (row.value, row.source, row.unknown, row.refused) == (5, "override", True, None)


async def test_an_override_that_is_not_in_force_here_says_why(app: Holdfast) -> None:  # E10
    await app.policies.set("tasks.t.limits.concurrency", 9)
    reloader = app.runtime.declared.reloader
    assert reloader.path is not None
    reloader.path.write_text("[queues.q.limits]\nconcurrency = 6\n")
    assert reloader.reload(app.tasks, asked=True)
    row = (await found(app))["tasks.t.limits.concurrency"]
    assert (row.value, row.source) == (5, "code")
    assert row.override is not None
    assert "more than its whole queue" in str(row.refused)


async def test_without_tasks_the_file_and_the_overrides_are_shown(app: Holdfast) -> None:  # E10
    store = (await app.runtime.engine()).store
    assert app.runtime.declared.reloader.path is not None
    other = Holdfast("memory://", store=store, policies=app.runtime.declared.reloader.path)
    await other.policies.set("tasks.t.timeout", "1m")
    rows = await found(other)
    assert (rows["tasks.t.timeout"].value, rows["tasks.t.timeout"].without) == ("1m", "9s")
    assert facts(rows["tasks.t.backoff.fixed"]) == ("5s", "file", "2")
    assert not any(one.unknown for one in rows.values())


async def test_the_values_in_force_are_those_that_are_in_force(app: Holdfast) -> None:  # E10
    """The rows are made from the policies that workers use: each value is that of the task."""
    await app.policies.set("tasks.t.max_attempts", 6)
    await app.policies.set("queues.q.timeout", "4s")
    rows = await found(app)
    for task in app.tasks.values():
        assert rows[f"tasks.{task.name}.max_attempts"].value == task.policy.retry.max_attempts
        assert rows[f"tasks.{task.name}.cost"].value == task.policy.cost
    assert rows["tasks.u.timeout"].value == "4s"
