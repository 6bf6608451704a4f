"""`Idempotency-Key` on everything that changes something: sent again it is answered again and done once, whatever was lost.

The routes come from the table of the API, so that a new one is tested by being there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from holdfast import Every
from holdfast.engine.access import Action, Role
from holdfast.engine.tables import access_keys, requests
from holdfast.engine.tables import operations as operation_table
from holdfast.engine.tables import ticks as schedule_ticks
from holdfast.engine.tables.sql import read
from holdfast.errors import StoreUnavailable
from holdfast.server.assembly import table
from holdfast.server.routes import document
from holdfast.server.routing import ApiRoute, takes_idempotency_key
from holdfast.testing import ManualClock
from holdfast.webhooks import table as webhook_table
from tests.server.world import API, House, assert_as_documented, new_app, new_house

pytestmark = pytest.mark.anyio

TABLE = {route.name: route for route in table(new_house().site)}
#: Those that keep their answers; enqueueing keeps the name with its jobs (`test_idempotency.py`).
NAMED = {
    name: route
    for name, route in TABLE.items()
    if takes_idempotency_key(route) and route.action is not Action.ENQUEUE
}
#: Those that are sent by POST and take no name, and why: a decision, not an accident.
NAMELESS = {
    "search_stuck_jobs": "it only looks",
    "receive_webhook": "its messages have names of their own",
    "open_session": "another session does no harm, and its cookie is kept nowhere",
}
BODIES: dict[str, Any] = {
    "discard_dead_letter": {"reason": "of no use"},
    "park_message": {"reason": "for a while"},
    "discard_message": {"reason": "of no use"},
    "begin_operation": {"action": "redrive", "filter": {"task": ["convert"]}},
    "pause_scope": {"kind": "queue", "name": "press"},
    "resume_scope": {"kind": "queue", "name": "press"},
    "create_key": {"role": "viewer"},
    "set_policy": {"key": "tasks.convert.cost", "value": 2, "lasts": "1d"},
    "unset_policy": {"key": "tasks.convert.cost"},
    "create_webhook": {"url": "https://1.1.1.1/hook"},
    "create_inbound_webhook": {},
}
TELL_SECRETS = {
    "create_key",
    "rotate_key",
    "create_webhook",
    "create_inbound_webhook",
    "rotate_webhook_secret",
}


def new_scheduling_app(url: str = "memory://", **settings: Any) -> House:
    app = new_app(url, **settings)
    app.schedule(app.tasks["note"], Every("5m"), args={"text": "tick"})
    return new_house(app, **{name: settings[name] for name in settings if name == "clock"})


@pytest.fixture
async def house(store_url: str) -> AsyncIterator[House]:
    house = new_scheduling_app(store_url)
    async with house.app:
        yield house


@pytest.fixture(scope="module")
def timed() -> tuple[House, ManualClock]:
    clock = ManualClock()
    return new_scheduling_app(clock=clock), clock


async def calm(house: House) -> None:
    """End what tests before have held back."""
    for held in await house.app.queues.holds():
        await house.app.queues.resume(held.scope.name, kind=held.scope.kind)
    for one in await house.app.breakers.list():
        if one.breaker.state != "closed":
            await house.app.breakers.close(one.dependency.label)


async def path_of(house: House, route: ApiRoute) -> str:
    """Where a request is sent that *route* carries out."""
    app, path = house.app, route.path
    await calm(house)
    if "{job_id}" in path:
        waits = route.name == "cancel_job"
        path = path.replace("{job_id}", await (house.enqueue() if waits else house.dead()))
    if "{operation_id}" in path:
        path = path.replace("{operation_id}", (await app.operations.begin("redrive")).id)
    if "{key_id}" in path:
        path = path.replace("{key_id}", (await app.keys.create("viewer"))[0].id)
    if "{message_id}" in path:
        message_id = await app.outbox.publish("orders", {})
        if route.name != "park_message":
            await app.outbox.park(message_id, reason="no route")
        path = path.replace("{message_id}", message_id)
    if "{webhook_id}" in path:
        path = path.replace("{webhook_id}", (await app.webhooks.create("https://1.1.1.1/hook")).id)
    if "/schedules/" in path:
        store = (await app.runtime.engine()).store
        now = await store.now()
        await schedule_ticks.move(store, "note", before=None, last=now, due=now + timedelta(minutes=5))
    name = {"breakers": "gateway", "schedules": "note"}.get(path.split("/")[3], "press")
    if route.name == "close_breaker":
        await app.breakers.open("gateway")
    return re.sub(r"\{name\}", name, path)


async def post(
    house: House,
    path: str,
    body: Any = None,
    key: str | None = "k1",
    who: tuple[Role, str | None] = (Role.ADMIN, None),
) -> httpx2.Response:
    headers = await house.as_(*who) | ({} if key is None else {"Idempotency-Key": key})
    async with house.client(headers=headers, timeout=30) as client:
        return await client.post(path, json=body)


async def everything(house: House) -> list[Any]:
    """What a second effect would change."""
    app = house.app
    return [
        [(event.kind, event.meta) for event in await app.events.list()],
        [(key.id, key.revoked_at) for key in await app.keys.list()],
        await app.webhooks.list(),
        [(one.id, one.state, one.tries) for one in await app.outbox.list()],
        [(one.id, one.progress) for one in await app.operations.list()],
        [(one.id, one.state) for one in await app.outbox.list()],
        await app.jobs.counts(internal=True),
        await app.queues.holds(),
        await app.policies.history(),
    ]


def code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_every_post_that_changes_something_takes_a_name_and_says_so() -> None:  # E37
    posts = {name for name, route in TABLE.items() if "POST" in (route.methods or ())}
    assert posts - {name for name, route in TABLE.items() if takes_idempotency_key(route)} == set(NAMELESS)
    told = document()["paths"]
    for name, route in TABLE.items():
        method = min(route.methods or ())
        operation = told[route.path_format][method.lower()]
        named = [one for one in operation.get("parameters", ()) if one["name"] == "Idempotency-Key"]
        assert len(named) == takes_idempotency_key(route), name
        assert not takes_idempotency_key(route) or "409" in operation["responses"], name


@pytest.mark.parametrize("name", NAMED)
async def test_whatever_is_sent_again_is_answered_again_and_done_once(
    timed: tuple[House, ManualClock], name: str
) -> None:  # E37
    (house, clock), route = timed, NAMED[name]
    path, body = await path_of(house, route), BODIES.get(name)
    first = await post(house, path, body)
    assert first.is_success, first.text
    assert "idempotency-replayed" not in first.headers
    before = await everything(house)
    clock.advance("1h")  # a pause or a key of an hour later would not be the same
    again = await post(house, path, body)
    assert_as_documented(route, again)
    if name in TELL_SECRETS:
        assert code(again) == (409, "SECRET_SHOWN_ONCE")
        assert again.json()["made"] == first.json()["id"]
        assert first.json()["secret"] not in again.text
    else:
        assert (again.status_code, again.content) == (first.status_code, first.content)
        assert again.headers["idempotency-replayed"] == "true"
        for header in ("location", "etag"):
            assert again.headers.get(header) == first.headers.get(header)
    other = await post(house, path, {"reason": "other"})
    if route.body_field is not None:
        assert code(other) == (422, "IDEMPOTENCY_KEY_REUSED")
        assert_as_documented(route, other)
    assert await everything(house) == before


async def test_no_secret_is_kept_for_the_sake_of_being_told_twice(house: House) -> None:  # E37, E66
    secrets = []
    for name in TELL_SECRETS:
        path = await path_of(house, NAMED[name])
        told, again = [await post(house, path, BODIES.get(name), key=name) for _ in range(2)]
        secrets.append(told.json()["secret"])
        assert code(again) == (409, "SECRET_SHOWN_ONCE")
    kept = await rows(house)
    assert len(kept) == len(TELL_SECRETS)
    assert not [secret for secret in secrets if secret in str(kept)]


async def rows(house: House) -> list[Any]:
    """What the store keeps of named requests."""
    store = (await house.app.runtime.engine()).store
    return [row["answers"] for row in await read(store, "SELECT answers FROM holdfast.request")]


async def test_the_same_key_for_another_thing_is_refused(house: House) -> None:  # E37
    one, other = await house.enqueue(), await house.enqueue()
    assert (await post(house, f"{API}/jobs/{one}/cancel")).status_code == 200
    assert code(await post(house, f"{API}/jobs/{other}/cancel")) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert (await house.app.jobs.get(other)).state == "queued"
    # Of another route, or of another caller, it is another key.
    assert (await post(house, f"{API}/jobs/{one}/retry")).status_code == 200
    whose = (Role.OWNER, "alice")
    assert (await post(house, f"{API}/jobs/{other}/cancel", who=whose)).status_code == 200
    assert (await post(house, f"{API}/jobs/{other}/retry", who=(Role.OPERATOR, None))).status_code == 200
    assert (await post(house, f"{API}/jobs/{other}/cancel", who=(Role.OWNER, "bob"))).status_code == 403


async def test_what_was_refused_may_be_mended_and_sent_under_its_key(house: House) -> None:  # E37
    job_id = await house.dead()
    assert (await post(house, f"{API}/jobs/{job_id}/cancel")).status_code == 409
    assert (await post(house, f"{API}/dead-letters/{job_id}/discard", {})).status_code == 422
    assert (await post(house, f"{API}/dead-letters/{job_id}/discard", {"reason": "old"})).status_code == 200
    await house.app.jobs.retry(job_id)
    assert (await post(house, f"{API}/jobs/{job_id}/cancel", {"reason": "now"})).status_code == 200
    for key in ("", '"', "a b", "x" * 256):
        assert code(await post(house, f"{API}/jobs/{job_id}/retry", key=key)) == (400, "BAD_REQUEST")
    assert await rows(house) != []


async def test_a_dry_run_counts_anew_and_leaves_its_key_for_the_real_one(house: House) -> None:  # E37
    path, body = f"{API}/operations", {"action": "redrive", "filter": {"task": ["convert"]}}
    for count in (0, 1):
        assert (await post(house, path, body | {"dry_run": True})).json()["matched"] == count
        await house.dead()
    assert await rows(house) == []
    assert (await post(house, path, body)).status_code == 202
    assert len(await rows(house)) == 1


async def test_a_version_that_was_read_does_not_stand_in_the_way_of_the_answer(house: House) -> None:  # E37
    job_id = await house.enqueue()
    headers = await house.as_(Role.ADMIN) | {"Idempotency-Key": "k1"}
    async with house.client(headers=headers) as client:
        tag = (await client.get(f"{API}/jobs/{job_id}")).headers["etag"]
        for _ in range(2):
            done = await client.post(f"{API}/jobs/{job_id}/cancel", headers={"If-Match": tag})
            assert done.status_code == 200


# -- at once, lost, killed ------------------------------------------------------------------------------------------------
Verb = Callable[..., Awaitable[Any]]


async def replace_verb(house: House, name: str, make: Callable[[Verb], Verb]) -> None:
    """Let something happen around a verb of a namespace, e.g. "jobs.cancel"."""
    namespace, _, word = name.partition(".")
    owner = getattr(house.app, namespace)
    setattr(owner, word, make(getattr(owner, word)))


async def test_while_one_is_carried_out_the_same_waits_and_another_is_refused(house: House) -> None:  # E37
    begun, go_on = asyncio.Event(), asyncio.Event()

    def slowly(verb: Verb) -> Verb:
        async def slow(*args: Any, **more: Any) -> Any:
            begun.set()
            await go_on.wait()
            return await verb(*args, **more)

        return slow

    job_id = await house.enqueue()
    await replace_verb(house, "jobs.cancel", slowly)
    path = f"{API}/jobs/{job_id}/cancel"
    first = asyncio.ensure_future(post(house, path))
    await asyncio.wait_for(begun.wait(), 10)
    second = await post(house, path)
    assert code(second) == (409, "IDEMPOTENCY_KEY_IN_FLIGHT")
    assert second.headers["retry-after"] == "1"
    assert_as_documented(TABLE["cancel_job"], second)
    assert code(await post(house, path, {"reason": "x"})) == (422, "IDEMPOTENCY_KEY_REUSED")
    go_on.set()
    assert (await first).status_code == 200
    again = await post(house, path)
    assert (again.status_code, again.content) == (200, (await first).content)


async def test_of_many_at_once_one_is_carried_out(house: House) -> None:  # E37
    job_id = await house.dead()
    await house.as_(Role.ADMIN)  # the same key for all
    path = f"{API}/dead-letters/{job_id}/redrive"
    answers = await asyncio.gather(*(post(house, path, {"to_queue": "slow"}) for _ in range(20)))
    done = [answer for answer in answers if answer.status_code == 200]
    assert sum("idempotency-replayed" not in answer.headers for answer in done) == 1
    others = {code(answer) for answer in answers if answer not in done}
    assert others <= {(409, "IDEMPOTENCY_KEY_IN_FLIGHT")}
    kinds = [event.kind for event in await house.app.events.list(job_id=job_id)]
    assert kinds.count("redriven") == 1


#: What may be lost after it was done, the route it belongs to, and how its effects are counted.
TABLES = {"access_keys": access_keys, "operation_table": operation_table, "webhook_table": webhook_table}
LOST: dict[str, tuple[str, Any, Callable[[House, str], Awaitable[int]]]] = {}


def lost(route: str, verb: str, body: Any = None) -> Callable[[Any], Any]:
    def keep(count: Callable[[House, str], Awaitable[int]]) -> Any:
        LOST[route] = (verb, body, count)
        return count

    return keep


@lost("retry_job", "jobs.retry")
@lost("redrive_dead_letter", "dead_letters.redrive_one")
@lost("cancel_job", "jobs.cancel")
@lost("discard_dead_letter", "store.discard", {"reason": "old"})
async def _people(house: House, path: str) -> int:
    events = await house.app.events.list(job_id=path.split("/")[4])
    return sum("by" in event.meta for event in events)


@lost("replay_webhook", "operation_table.add", {"after": "0"})
@lost("begin_operation", "operation_table.add", {"action": "redrive", "filter": {}})
async def _operations(house: House, path: str) -> int:
    return len(await house.app.operations.list())


@lost("create_webhook", "webhook_table.put", {"url": "https://1.1.1.1/hook"})
@lost("create_inbound_webhook", "webhook_table.put", {})
async def _webhooks(house: House, path: str) -> int:
    return len(await house.app.webhooks.list())


@lost("test_webhook", "engine.enqueue")
async def _messages(house: House, path: str) -> int:
    return int(await house.app.jobs.count(internal=True, tag=f"webhook:{path.split('/')[4]}"))


@lost("create_key", "access_keys.add", {"role": "viewer"})
async def _keys(house: House, path: str) -> int:
    return len(await house.app.keys.list())


@lost("rotate_key", "access_keys.revoke", {"overlap": "0s"})
async def _rotated_keys(house: House, path: str) -> int:
    return len(await house.app.keys.list())


@lost("rotate_webhook_secret", "webhook_table.put")
async def _secrets(house: House, path: str) -> int:
    """A second rotation would take away the one that receivers know."""
    [webhook] = [one for one in await house.app.webhooks.list() if one.id == path.split("/")[4]]
    known = _KNOWN.setdefault(webhook.id, webhook.seeds[0].salt)
    salts = [seed.salt for seed in webhook.seeds]
    return len(salts) if known in salts else -1


_KNOWN: dict[str, str] = {}


async def test_what_was_done_and_could_not_be_told_is_not_done_again(house: House) -> None:  # E6 E37
    for name in LOST:
        await _lose_and_repeat(house, name)


async def _lose_and_repeat(house: House, name: str) -> None:
    route, (verb, body, count) = NAMED[name], LOST[name]
    path, engine = await path_of(house, route), await house.app.runtime.engine()
    room, _, word = verb.partition(".")
    owner: Any = TABLES.get(room) or {"engine": engine, "store": engine.store}.get(room)
    owner = owner or getattr(house.app, room)
    real: Verb = getattr(owner, word)
    before = await count(house, path)

    async def lose(*args: Any, **more: Any) -> Any:
        await real(*args, **more)
        setattr(owner, word, real)
        raise StoreUnavailable("the connection was lost")

    setattr(owner, word, lose)
    assert code(await post(house, path, body)) == (503, "UNAVAILABLE"), name
    done = await count(house, path)
    assert done > before, name
    again = await post(house, path, body)
    assert again.is_success, (name, again.text)
    if name in ("create_key", "rotate_key"):
        assert await house.app.keys.find(again.json()["secret"]) is not None, name
    repeated = await post(house, path, body)
    assert repeated.is_success or code(repeated) == (409, "SECRET_SHOWN_ONCE"), name
    assert await count(house, path) == done, name


async def test_who_was_killed_before_it_could_answer_holds_its_name_for_a_minute(
    timed: tuple[House, ManualClock], monkeypatch: pytest.MonkeyPatch
) -> None:  # E37
    house, clock = timed
    await calm(house)
    job_id = await house.dead()
    path = f"{API}/jobs/{job_id}/retry"

    async def killed(*_args: Any, **_more: Any) -> bool:
        raise StoreUnavailable("it is not there any more")

    with monkeypatch.context() as patch:
        patch.setattr(requests, "answer", killed)
        first = await post(house, path, key="killed")
    assert first.status_code == 200  # it was done: that is told, whether or not it could be kept
    assert code(await post(house, path, key="killed")) == (409, "IDEMPOTENCY_KEY_IN_FLIGHT")
    clock.advance("1m")
    assert (await post(house, path, key="killed")).status_code == 200
    assert [event.kind for event in await house.app.events.list(job_id=job_id)].count("manual_retry") == 1
