"""Lists of jobs and dead letters: every filter, alone and together, page by page."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest

from holdfast.engine.artifacts import MARK
from holdfast.errors import UsageError
from holdfast.jobs.job import Attempt, DeadLetterFilter, JobFilter, JobId, Lane
from holdfast.jobs.moves import Kind, State
from holdfast.jobs.verdict import Complete, Failure, RetryAfter
from tests.contract.world import LANE, World, bury, done

OTHER = Lane("other", "report")
SECOND = timedelta(seconds=1)


async def found(world: World, limit: int = 3, **where: Any) -> list[JobId]:
    """All pages of a list; that they are in order and within their limit is checked on the way."""
    after, ids = None, []
    while True:
        page = await world.store.queries.jobs(JobFilter(**where), after=after, limit=limit)
        assert len(page.rows) <= limit
        ids += [row.id for row in page.rows]
        if page.next is None:
            break
        assert page.next != after
        after = page.next
    assert await world.store.queries.count(JobFilter(**where)) == len(ids)
    return ids


async def some_jobs(world: World) -> list[JobId]:
    """Twelve jobs, oldest first, of every state, two lanes, with and without everything."""
    ids = []
    for number in range(12):
        spec: dict[str, Any] = {
            "lane": OTHER if number % 3 == 0 else LANE,
            "payload": f'{{"n": {number % 2}}}',
        }
        if number % 2:
            spec |= {"owner": "ann", "tags": ("red", "blue")}
        if number % 4 == 0:
            spec["key"] = f"key{number}"
        ids.append(await world.enqueue(**spec))
        await world.advance("1s")
    session = await world.session()
    for number, claimed in enumerate(await world.claim(session, 5) + await world.claim(session, 4, OTHER)):
        if number % 4 != 3:
            await world.settle(claimed, bury(f"CODE{number % 2}") if number % 4 < 2 else done())
    await world.store.cancel(ids[-1], "ann", "")
    return ids


async def test_every_pair_of_filters_finds_exactly_the_jobs_that_match_both(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # E66
    for module in ("sqlite", "postgres"):  # so that pages end before they are full
        for name in ("MOST_READ", "MOST_SEARCHED"):
            monkeypatch.setattr(f"holdfast.stores.{module}.search.{name}", 5)
    ids = await some_jobs(world)
    rows = [await world.row(job_id) for job_id in reversed(ids)]
    middle = rows[6].created_at
    filters: list[tuple[dict[str, Any], Any]] = [
        ({"states": (state,)}, lambda r, state=state: r.state is state) for state in State
    ]
    filters += [
        ({"states": (State.FAILED, State.QUEUED)}, lambda r: r.state in (State.FAILED, State.QUEUED)),
        ({"tasks": ("report", "nothing")}, lambda r: r.task == "report"),
        ({"queues": ("default",)}, lambda r: r.queue == "default"),
        ({"owner": "ann"}, lambda r: r.owner == "ann"),
        ({"tag": "red"}, lambda r: "red" in r.tags),
        ({"args": {"n": 1}}, lambda r: r.payload["n"] == 1),
        ({"ids": (*ids[2:9], "no-id", ids[2])}, lambda r: r.id in ids[2:9]),
        ({"created_after": middle}, lambda r: r.created_at >= middle),
        ({"created_before": middle}, lambda r: r.created_at < middle),
        ({"error_code": "CODE1"}, lambda r: r.error_code == "CODE1"),
        ({"key": "key4"}, lambda r: r.key == "key4"),
    ]
    for (where, matches), (also, matches_too) in combinations([({}, lambda _: True), *filters], 2):
        if not where.keys() & also.keys():
            expected = [row.id for row in rows if matches(row) and matches_too(row)]
            assert await found(world, **where, **also) == expected, (where, also)


INTERNAL = Lane("holdfast.webhooks", "holdfast.webhook")


async def test_the_engines_own_jobs_are_listed_only_where_they_are_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # E66
    for module in ("sqlite", "postgres"):
        monkeypatch.setattr(f"holdfast.stores.{module}.search.MOST_READ", 9)
    ids = await some_jobs(world)
    rows = [await world.row(job_id) for job_id in reversed(ids)]
    # One that looks like it, and is a user's: neither case nor a point makes it the engine's.
    users = [await world.enqueue(lane=Lane("default", name)) for name in ("Holdfast.webhook", "holdfastx")]
    own = [await world.enqueue(lane=INTERNAL, owner="ann", key="key4") for _ in range(8)]
    session = await world.session()
    for number, claimed in enumerate(await world.claim(session, 4, INTERNAL)):
        await world.settle(claimed, bury("CODE1") if number % 2 else done())
    without: list[dict[str, Any]] = [
        {}, {"owner": "ann"}, {"key": "key4"}, {"error_code": "CODE1"}, {"queues": ("default",)}
    ]  # fmt: skip
    for where in without:
        assert not set(own) & set(await found(world, **where)), where
    for state in State:
        expected = [row.id for row in rows if row.state is state]
        listed = await found(world, states=(state,))
        assert [one for one in listed if one not in users] == expected
    asked: list[dict[str, Any]] = [
        {"internal": True},
        {"internal": True, "owner": "ann"},
        {"tasks": (INTERNAL.task,)},
        {"queues": (INTERNAL.queue, "default")},
        {"ids": tuple(own)},
    ]
    for where in asked:
        assert set(own) <= set(await found(world, **where)), where
    assert set(users) <= set(await found(world))
    assert await found(world, internal=True, states=(State.PROCESSING,), tasks=(INTERNAL.task,)) == []


async def test_dead_letters_of_the_engines_own_jobs_are_listed_only_where_they_are_asked_for(
    world: World,
) -> None:
    user, own = await world.enqueue(), await world.enqueue(lane=INTERNAL)
    session = await world.session()
    for claimed in await world.claim(session, 1) + await world.claim(session, 1, INTERNAL):
        await world.settle(claimed, bury("BOOM"))

    async def listed(**where: Any) -> set[JobId]:
        chosen = DeadLetterFilter(**where)
        letters = await world.store.queries.dead_letters(chosen, after=None, limit=10)
        groups = await world.store.queries.dead_letter_groups(chosen, 10)
        assert len(letters) == sum(group.count for group in groups)
        assert len(letters) == await world.store.queries.count_dead_letters(chosen)
        return {letter.id for letter in letters}

    assert await listed() == {user}
    assert await listed(codes=("BOOM",)) == {user}
    assert await listed(internal=True) == {user, own}
    assert await listed(tasks=(INTERNAL.task,)) == await listed(queues=(INTERNAL.queue,)) == {own}
    assert await listed(ids=(own,)) == {own}


async def test_each_state_is_listed_whatever_the_others_are(world: World) -> None:  # E66
    ids = await some_jobs(world)
    listed = {state: await found(world, states=(state,)) for state in State}
    assert all(listed.values())
    assert sorted(job_id for some in listed.values() for job_id in some) == sorted(ids)


async def test_an_argument_may_be_anything_that_json_is(world: World) -> None:  # E66
    values = ["null", "true", '"a\\"b"', '[1, {"x": null}]', "1.5", '"1"', "1", "[true]", '"[true]"', "[1]"]
    ids = [await world.enqueue(f'{{"v": {value}, "a\\"b.c": 1}}') for value in values]
    told: list[Any] = [None, True, 'a"b', [1, {"x": None}], 1.5, "1", 1, [True], "[true]", [1]]
    for job_id, value in zip(ids, told, strict=True):
        assert await found(world, args={"v": value}) == [job_id]
    assert len(await found(world, args={'a"b.c': 1})) == len(ids)
    assert await found(world, args={"missing": None}) == []


async def test_a_job_that_moved_to_another_queue_is_found_there(world: World) -> None:  # E33 E66
    job_id = await world.enqueue()
    await world.settle(await world.claim_one(), bury())
    await world.store.retry(job_id, "ann", kind=Kind.redriven, queue="other")
    assert await found(world, queues=("other",)) == [job_id]
    assert await found(world, queues=("default",)) == []


async def test_keys_that_are_ours_are_not_found_by_their_name(world: World) -> None:  # E66
    await world.enqueue(key="\x1fmail\x1fann")
    assert await found(world, key="\x1fmail\x1fann") == []


@pytest.mark.parametrize("cursor", ["x", "-1", "1; DROP TABLE", "0" * 40, "----", "é", "\ud800", "\x00"])
async def test_a_made_up_cursor_of_a_list_is_refused(world: World, cursor: str) -> None:  # E66
    with pytest.raises(UsageError, match="cursor"):
        await world.store.queries.jobs(JobFilter(), after=cursor, limit=5)


async def test_dead_letters_are_paged_by_their_ids(world: World) -> None:  # E32
    ids = [await world.enqueue() for _ in range(7)]
    for claimed in await world.claim(limit=7):
        await world.settle(claimed, bury())
    after, pages = None, []
    while page := await world.store.queries.dead_letters(DeadLetterFilter(), after=after, limit=3):
        pages.append([letter.id for letter in page])
        after = pages[-1][-1]
    assert pages == [sorted(ids)[:3], sorted(ids)[3:6], sorted(ids)[6:]]


async def test_dead_letters_are_counted_and_found_by_when_they_died(world: World) -> None:  # E32
    for _ in range(3):
        await world.enqueue()
        await world.settle(await world.claim_one(), bury())
        await world.advance("10s")
    count = world.store.queries.count_dead_letters
    letters = await world.store.queries.dead_letters(DeadLetterFilter(), after=None, limit=10)
    [first, second, third] = sorted(letter.at for letter in letters)
    assert await count(DeadLetterFilter()) == 3
    assert await count(DeadLetterFilter(died_before=second)) == 1
    assert await count(DeadLetterFilter(died_after=second)) == 2
    assert await count(DeadLetterFilter(died_after=first + SECOND, died_before=third)) == 1
    assert await count(DeadLetterFilter(codes=("OTHER",))) == 0
    assert await count(DeadLetterFilter(ids=(JobId("no-id"),))) == 0


async def test_a_list_without_contents_is_the_same_but_for_arguments_and_results(world: World) -> None:  # E66
    await some_jobs(world)
    for result in ('{"a":1}', f"{MARK}{'0' * 36}/1.json"):
        await world.enqueue(payload='{"text": "x"}')
        await world.settle(await world.claim_one(), Complete(result))
    whole = await world.store.queries.jobs(JobFilter(), after=None, limit=50)
    light = await world.store.queries.jobs(JobFilter(), after=None, limit=50, contents=False)
    assert light.next == whole.next
    assert any(row.result is not None for row in whole.rows)
    for row, bare_row in zip(whole.rows, light.rows, strict=True):
        ends = bare_row.lease_expires_at  # read from a clock that goes on
        assert bare_row == replace(row, payload=None, result=None, lease_expires_at=ends)
    assert [row.artifact for row in light.rows if row.artifact] == [f"{'0' * 36}/1.json"]
    letters = await world.store.queries.dead_letters(DeadLetterFilter(), after=None, limit=50)
    assert letters
    bare = await world.store.queries.dead_letters(DeadLetterFilter(), after=None, limit=50, contents=False)
    assert bare == [replace(letter, payload=None) for letter in letters]


async def test_attempts_are_read_in_pages(world: World) -> None:  # E66
    job_id = await world.enqueue(max_attempts=5)
    for _ in range(4):
        await world.settle(await world.claim_one(), RetryAfter(timedelta(), Failure.of("NETWORK")))
        await world.store.promote(10)
    await world.claim_one()
    every = await world.store.queries.attempts(job_id)
    assert len(every) == 5
    paged: list[Attempt] = []
    while page := await world.store.queries.attempts(job_id, after=paged[-1].epoch if paged else 0, limit=2):
        assert len(page) <= 2
        paged += page
    assert paged == every
    assert await world.store.queries.attempts(job_id, after=every[-1].epoch, limit=2) == []
