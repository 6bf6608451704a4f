"""Messages for others, through the API: looked at, replayed, parked, discarded."""

from __future__ import annotations

import pytest

from holdfast.engine.access import Role
from tests.server.test_jobs import call
from tests.server.world import API, House, new_house

pytestmark = pytest.mark.anyio


@pytest.fixture
def house() -> House:
    return new_house()


async def test_messages_are_listed_page_by_page_and_shown_with_their_bodies(house: House) -> None:  # E44 E66
    ids = [await house.app.outbox.publish("orders", {"n": n}, key="k") for n in range(3)]
    binary = await house.app.outbox.publish("bills", b"\xff\x00")
    page = (await call("list_messages", query={"topic": "orders", "limit": "2"}, house=house)).json()
    assert [one["id"] for one in page["messages"]] == ids[:2]
    assert page["messages"][0]["state"] == "waiting"
    assert "body" not in page["messages"][0]
    rest = {"topic": "orders", "limit": "2", "cursor": page["next"]}
    last = (await call("list_messages", query=rest, house=house)).json()
    assert ([one["id"] for one in last["messages"]], last["next"]) == (ids[2:], None)
    other = {"topic": "bills", "cursor": page["next"]}
    assert (await call("list_messages", query=other, house=house)).json()["code"] == "BAD_CURSOR"
    whole = (await call("get_message", message_id=ids[0], house=house)).json()
    assert (whole["body"], whole["is_text"], whole["bytes"]) == ('{"n":0}', True, 7)
    shown = (await call("get_message", message_id=binary, house=house)).json()
    assert (shown["body"], shown["is_text"]) == ("ff00", False)
    assert (await call("get_message", message_id="nothing", house=house)).status_code == 404
    topics = (await call("list_topics", house=house)).json()["topics"]
    assert [(one["topic"], one["waiting"]) for one in topics] == [("bills", 1), ("orders", 3)]


async def test_a_parked_message_is_replayed_or_discarded_with_the_reason_on_record(
    house: House,
) -> None:  # E44 E66
    one = await house.app.outbox.publish("orders", {})
    why = {"reason": "nobody wants it"}
    assert (await call("discard_message", why, message_id=one, house=house)).status_code == 409
    assert (await call("replay_message", message_id=one, house=house)).status_code == 409
    assert (await call("park_message", {"reason": ""}, message_id=one, house=house)).status_code == 422
    parked = await call("park_message", {"reason": "it is wrong"}, message_id=one, house=house)
    assert parked.json() == {"id": one, "state": "parked"}
    assert (await call("replay_message", message_id=one, house=house)).json()["state"] == "waiting"
    await house.app.outbox.park(one, reason="no route")
    assert (await call("discard_message", why, message_id=one, house=house)).json() == {
        "id": one,
        "state": "discarded",
    }
    assert (await call("discard_message", why, message_id=one, house=house)).status_code == 404
    [told] = [event for event in await house.app.events.list() if event.kind == "discarded"]
    assert (told.meta["message"], told.meta["reason"]) == (one, "nobody wants it")
    assert told.meta["by"].startswith("key:")


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OWNER])
async def test_only_staff_may_discard(house: House, role: Role) -> None:  # E66
    one = await house.app.outbox.publish("orders", {})
    await house.app.outbox.park(one, reason="no route")
    headers = await house.as_(role, "alice" if role is Role.OWNER else None)
    async with house.client(headers=headers) as client:
        refused = await client.post(f"{API}/messages/{one}/discard", json={"reason": "x"})
        assert refused.status_code == 403
        assert (await client.get(f"{API}/messages")).status_code == (200 if role is Role.VIEWER else 403)
    assert (await house.app.outbox.get(one)).state == "parked"
