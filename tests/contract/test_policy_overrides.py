"""Overrides of policies: set, changed by one of two people, ended, expired by the store's clock, and recorded."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Conflict, Holdfast, Retry, UsageError
from holdfast.engine.override_feed import read_overrides
from holdfast.engine.policies import MOST_OVERRIDES, end_expired
from holdfast.engine.tables import policy_overrides
from holdfast.engine.tables.sql import fetch
from tests.contract.world import MINUTE, World

KEY = "tasks.email.max_attempts"


@dataclass
class Apps:
    """Two processes over one store, each with the task `email`."""

    world: World
    first: Holdfast
    second: Holdfast

    async def events(self) -> list[tuple[str, dict[str, Any]]]:
        return [
            (event.kind, event.meta) for event in await self.world.store.queries.events(after=0, limit=1000)
        ]


@pytest.fixture
def apps(world: World) -> Apps:
    return Apps(world, an_app(world), an_app(world))


def an_app(world: World, file: Path | None = None) -> Holdfast:
    app = Holdfast("memory://", store=world.store, clock=world.clock, policies=file)

    @app.task(retry=Retry(3))
    async def email() -> None: ...

    return app


def attempts(app: Holdfast) -> int:
    return app.tasks["email"].policy.retry.max_attempts


async def test_an_override_is_in_force_here_at_once_and_elsewhere_at_the_next_look(apps: Apps) -> None:  # E10
    elsewhere = await apps.second.runtime.engine()
    found = await apps.first.policies.set(KEY, 7, reason="bank is slow", by="ann")
    assert (found.key, found.value, found.by, found.reason) == (KEY, 7, "ann", "bank is slow")
    assert (found.expires_at, found.ended_at) == (None, None)
    assert attempts(apps.first) == 7
    assert attempts(apps.second) == 3
    await read_overrides(elsewhere)
    assert attempts(apps.second) == 7
    assert await apps.second.policies.list() == [found]


async def test_a_process_that_starts_later_begins_with_the_overrides(apps: Apps) -> None:  # E10
    await apps.first.policies.set(KEY, 7)
    assert attempts(apps.second) == 3
    await apps.second.runtime.engine()
    assert attempts(apps.second) == 7


async def test_an_override_that_is_unset_leaves_what_the_code_says(apps: Apps) -> None:  # E10
    await apps.first.policies.set(KEY, 7)
    assert await apps.first.policies.unset(KEY, by="bob", reason="over")
    assert attempts(apps.first) == 3
    assert await apps.first.policies.list() == []
    assert not await apps.first.policies.unset(KEY)
    [ended] = await apps.first.policies.history(KEY)
    assert (ended.value, ended.ended_by, ended.ended_reason) == (7, "bob", "over")
    assert ended.ended_at is not None


async def test_each_change_is_an_event_with_its_author_and_reason(apps: Apps) -> None:  # E10
    first = await apps.first.policies.set(KEY, 7, by="ann", reason="slow")
    second = await apps.first.policies.set(KEY, 8, by="bob", lasts="1m")
    await apps.first.policies.unset(KEY, by="cid", reason="over")
    (set_kind, set_meta), (again_kind, again_meta), (unset_kind, unset_meta) = await apps.events()
    assert (set_kind, again_kind, unset_kind) == ("override_set", "override_set", "override_unset")
    assert set_meta == {"key": KEY, "value": 7, "by": "ann", "reason": "slow", "version": first.version}
    assert (again_meta["before"], again_meta["by"], again_meta["version"]) == (7, "bob", second.version)
    assert "until" in again_meta
    assert (unset_meta["value"], unset_meta["by"], unset_meta["reason"]) == (8, "cid", "over")


async def test_of_two_people_one_wins_and_the_other_is_told_who(apps: Apps) -> None:  # E10
    shown = await apps.first.policies.set(KEY, 7, by="ann")
    answers = await asyncio.gather(
        apps.first.policies.set(KEY, 8, by="bob", version=shown.version),
        apps.second.policies.set(KEY, 9, by="cid", version=shown.version),
        return_exceptions=True,
    )
    [won] = [one for one in answers if not isinstance(one, BaseException)]
    [lost] = [one for one in answers if isinstance(one, Conflict)]
    assert f"{won.by} set it to {won.value} at " in str(lost)
    assert f"(version {won.version})" in str(lost)
    assert await apps.first.policies.list() == [won]


async def test_of_two_who_set_a_new_key_at_once_one_wins(apps: Apps) -> None:  # E10
    answers = await asyncio.gather(
        *(app.policies.set(KEY, 8, by="bob", version=0) for app in (apps.first, apps.second)),
        return_exceptions=True,
    )
    assert sorted(isinstance(one, Conflict) for one in answers) == [False, True]


async def test_what_was_unset_or_never_set_is_no_version_to_change(apps: Apps) -> None:  # E10
    shown = await apps.first.policies.set(KEY, 7, by="ann")
    await apps.first.policies.unset(KEY, by="bob", version=shown.version)
    with pytest.raises(Conflict, match="bob unset it at "):
        await apps.first.policies.set(KEY, 8, version=shown.version)
    with pytest.raises(Conflict, match="bob unset it at "):
        await apps.first.policies.unset(KEY, version=shown.version, by="cid")
    with pytest.raises(Conflict, match="was never overridden"):
        await apps.first.policies.set("tasks.email.timeout", "5s", version=1)
    again = await apps.first.policies.set(KEY, 8, version=0)
    assert again.version > shown.version + 1


async def test_an_unset_that_is_repeated_is_answered_as_the_first(apps: Apps) -> None:  # E10 E37
    shown = await apps.first.policies.set(KEY, 7, by="ann")
    for _ in range(2):
        assert await apps.first.policies.unset(KEY, by="bob", reason="over", version=shown.version)
    assert [kind for kind, _ in await apps.events()] == ["override_set", "override_unset"]


async def test_a_call_that_is_repeated_under_its_token_sets_one_override(apps: Apps) -> None:  # E10 E37
    first = await apps.first.policies.set(KEY, 7, version=0, token="call")
    assert await apps.first.policies.set(KEY, 7, version=0, token="call") == first
    assert await apps.first.policies.history(KEY) == [first]
    assert len(await apps.events()) == 1


async def test_an_override_expires_by_the_stores_clock_without_a_change_of_any_other(
    apps: Apps,
) -> None:  # E10
    found = await apps.first.policies.set(KEY, 7, lasts=MINUTE)
    assert found.expires_at == found.set_at + MINUTE
    await apps.world.advance("59s")
    await read_overrides(await apps.second.runtime.engine())
    assert attempts(apps.second) == 7
    await apps.world.advance("1s")
    assert await apps.first.policies.list() == []
    for app in (apps.first, apps.second):
        await read_overrides(await app.runtime.engine())
        assert attempts(app) == 3


async def test_the_end_of_an_override_that_expired_is_recorded_once(apps: Apps) -> None:  # E10
    engine = await apps.first.runtime.engine()
    found = await apps.first.policies.set(KEY, 7, by="ann", lasts=MINUTE)
    assert await end_expired(engine) == 0
    await apps.world.advance(MINUTE)
    assert sorted(await asyncio.gather(*(end_expired(engine) for _ in range(3)))) == [0, 0, 1]
    [_, (kind, meta)] = await apps.events()
    assert (kind, meta["key"], meta["by"]) == ("override_expired", KEY, "ann")
    [ended] = await apps.first.policies.history()
    assert (ended.ended_at, ended.ended_by) == (found.expires_at, None)


async def test_a_key_that_expired_can_be_set_again_before_its_end_was_recorded(apps: Apps) -> None:  # E10
    shown = await apps.first.policies.set(KEY, 7, lasts=MINUTE)
    await apps.world.advance(MINUTE)
    with pytest.raises(Conflict, match="it expired at "):
        await apps.first.policies.set(KEY, 8, version=shown.version)
    assert (await apps.first.policies.set(KEY, 8, version=0)).value == 8
    assert [kind for kind, _ in await apps.events()] == ["override_set", "override_expired", "override_set"]


async def test_history_is_newest_first_by_key_and_in_pages(apps: Apps) -> None:  # E10
    for value in (5, 6, 7):
        await apps.first.policies.set(KEY, value)
    await apps.first.policies.set("tasks.email.timeout", "5s")
    assert [one.value for one in await apps.first.policies.history()] == ["5s", 7, 6, 5]
    assert [one.value for one in await apps.first.policies.history(KEY, limit=2)] == [7, 6]
    rest = await apps.first.policies.history(
        KEY, before=(await apps.first.policies.history(KEY, limit=2))[-1].version
    )
    assert [one.value for one in rest] == [5]
    assert rest[0].ended_reason == "replaced by version 2"


async def test_what_ended_many_changes_ago_is_forgotten(
    apps: Apps, monkeypatch: pytest.MonkeyPatch
) -> None:  # E10
    monkeypatch.setattr(policy_overrides, "KEPT_CHANGES", 2)
    await apps.first.policies.set("tasks.email.timeout", "5s")
    for value in range(3, 8):
        await apps.first.policies.set(KEY, value)
    assert [one.value for one in await apps.first.policies.history()] == [7, 6, "5s"]


VALUES = [
    7,
    2.5,
    True,
    False,
    "täglich ✓ \\ \" '",
    "x" * 3000,
    ["5s", "25s"],
    {"fixed": "5s", "jitter": "20%"},
    2**62,
    "",
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: str(value)[:12])
async def test_a_value_comes_back_as_it_was_set(
    apps: Apps, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:  # E10
    monkeypatch.setattr("holdfast.engine.policies._check", lambda *given: None)
    await apps.first.policies.set(KEY, value)
    [found] = await apps.second.policies.list()
    assert (found.value, type(found.value)) == (value, type(value))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"value": 0}, "override by api: tasks.email.max_attempts: max_attempts is 0; it is a whole number, 1 to 1000"),
    ({"value": None}, "None cannot be written in a policy file"),
    ({"key": "tasks.email.max_attemps"}, "override by api: tasks.email.max_attemps: there is no such key here; did you mean"),
    ({"key": "email"}, "email: this section cannot be overridden"),
    ({"key": "plugins.gates", "value": ["x"]}, "plugins.gates: this section cannot be overridden"),
    ({"reason": "x" * 501}, "reason is 'xxx"),
    ({"reason": "a\nb"}, "reason is 'a"),
    ({"by": ""}, "by is ''; it is 1 to 300 printable characters"),
    ({"by": "\x00"}, "by is "),
    ({"lasts": "0s"}, "an override that lasts no time is of no use"),
    ({"lasts": "soon"}, "lasts: 'soon' is not a duration"),
    ({"version": -1}, "version is -1"),
    ({"value": "x" * 5000}, "tasks.email.max_attempts: the value has 5,002 characters"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "said"), WRONG)
async def test_what_is_wrong_is_refused_and_changes_nothing(
    apps: Apps, given: dict[str, Any], said: str
) -> None:  # E10
    call: dict[str, Any] = {"key": KEY, "value": 7} | given
    with pytest.raises(UsageError) as refused:
        await apps.first.policies.set(call.pop("key"), call.pop("value"), **call)
    assert str(refused.value).startswith(said)
    assert len(str(refused.value)) < 250
    assert await apps.first.policies.history() == []
    assert await apps.events() == []


async def test_an_override_that_contradicts_another_is_refused(apps: Apps) -> None:  # E10
    await apps.first.policies.set("tasks.email.deadline", "10s", by="ann")
    with pytest.raises(
        UsageError, match=r"override by bob: tasks.email.timeout: it is longer than the deadline"
    ):
        await apps.second.policies.set("tasks.email.timeout", "20s", by="bob")
    await apps.first.policies.set("tasks.email.backoff", {"fixed": "1s"}, by="ann")
    with pytest.raises(UsageError, match=r"ann has overridden tasks.email.backoff; unset that first"):
        await apps.second.policies.set("tasks.email.backoff.cap", "20s")


async def test_an_override_that_no_longer_fits_stops_no_other_change(
    apps: Apps, tmp_path: Path
) -> None:  # E10
    await apps.first.policies.set("tasks.email.limits.concurrency", 9)
    file = tmp_path / "holdfast.toml"
    file.write_text("[queues.default.limits]\nconcurrency = 4\n")
    other = an_app(apps.world, file)
    await other.policies.set(KEY, 7)
    assert attempts(other) == 7
    assert list(other.runtime.declared.reloader.refused) == ["tasks.email.limits.concurrency"]


async def test_there_is_a_bound_on_how_many_overrides_there_may_be(apps: Apps) -> None:  # E10
    engine = await apps.first.runtime.engine()

    async def fill(transaction: Any) -> None:
        version = await policy_overrides.take_version(transaction)
        for number in range(version, version + MOST_OVERRIDES):
            await fetch(
                transaction,
                "INSERT INTO holdfast.policy_override (version, key, value, by, reason, token, set_at)"
                " VALUES ($1::bigint, $2::text, '5', 'ann', '', '', holdfast.clock())",
                number,
                f"tasks.t{number}.max_attempts",
            )
        await fetch(
            transaction, "UPDATE holdfast.policy_version SET version = $1::bigint", version + MOST_OVERRIDES
        )

    await engine.store.transact(fill)
    with pytest.raises(Conflict, match="there are 500 overrides, the most there may be"):
        await apps.first.policies.set(KEY, 7)
    changed = await apps.first.policies.set("tasks.t1.max_attempts", 6)
    assert changed.value == 6
    assert len(await apps.first.policies.list()) == MOST_OVERRIDES
    assert await apps.first.policies.unset("tasks.t2.max_attempts")
    await apps.first.policies.set(KEY, 7)
    assert attempts(apps.first) == 7


async def test_looking_for_a_change_is_one_read_of_one_row(
    apps: Apps, monkeypatch: pytest.MonkeyPatch
) -> None:  # E10
    await apps.first.policies.set(KEY, 7, lasts=timedelta(hours=1))
    engine, reads = await apps.first.runtime.engine(), 0
    transact = engine.store.transact

    async def counted(*given: Any, **options: Any) -> Any:
        nonlocal reads
        reads += 1
        assert options == {"reads": True}
        return await transact(*given, **options)

    monkeypatch.setattr(engine.store, "transact", counted)
    for _ in range(5):
        await read_overrides(engine)
    assert reads == 5


async def test_overrides_are_exported_as_a_policy_file(apps: Apps, tmp_path: Path) -> None:  # E10
    await apps.first.policies.set(KEY, 7, by="ann", reason="slow")
    await apps.first.policies.set("priorities.high", 9)
    file = tmp_path / "holdfast.toml"
    file.write_text(await apps.first.policies.export())
    assert (
        file.read_text() == "[tasks.email]\nmax_attempts = 7  # ann: slow\n\n[priorities]\nhigh = 9  # api\n"
    )
    assert attempts(an_app(apps.world, file)) == 7
