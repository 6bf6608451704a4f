"""The failure modes and acceptance criteria of the source document, with a real RabbitMQ and real Celery workers (G8).

One broker and one set of processes for all of them. What a test breaks it mends.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

import aio_pika
import pytest

from devservices.postgres import Postgres
from devservices.proxy import Proxy
from devservices.rabbitmq import RabbitMq
from holdfast.celery import encode_task, sign
from systems.grading.audio import make_recording
from systems.grading.callbacks.consumer import declare
from systems.grading.submissions import submit
from systems.grading.tasks import build
from systems.grading.topology import CALLBACKS, DEAD, REFUSED, REQUESTS
from systems.grading.worker.ledger import Cost
from tests.databases import new_database
from tests.systems.grading.stack import COOLDOWN, SECRET, Stack

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wire(own_rabbitmq: RabbitMq) -> Iterator[Proxy]:
    """The way to the broker."""
    with Proxy(own_rabbitmq.host, own_rabbitmq.port, postgres=False) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def shared(
    own_rabbitmq: RabbitMq, wire: Proxy, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """On PostgreSQL, the ledger too, as on several machines; test_run.py has it on SQLite."""
    broker_url = wire.route(own_rabbitmq.url())
    with (
        new_database(postgres) as url,
        Stack(tmp_path_factory.mktemp("grading"), broker_url, url, url) as stack,
    ):
        stack.ended(stack.submit(), 60)  # everybody is up
        yield stack


def put_right(stack: Stack, wire: Proxy, server: RabbitMq) -> Stack:
    """What a test before this one has broken and, because it failed, has not mended."""
    wire.heal()
    server.start()
    stack.mend()
    return stack


@pytest.fixture
def grading(shared: Stack, wire: Proxy, own_rabbitmq: RabbitMq) -> Stack:
    return put_right(shared, wire, own_rabbitmq)


def broker(stack: Stack, act: Any) -> Any:
    """Do something with a channel of the broker."""

    async def run() -> Any:
        connection = await aio_pika.connect(stack.environment["BROKER_URL"], timeout=10)
        async with connection:
            channel = await connection.channel()
            await declare(channel)
            return await act(channel)

    return asyncio.run(run())


def depth(stack: Stack, queue: str) -> int:
    async def look(channel: Any) -> int:
        found = await channel.declare_queue(queue, passive=True)
        return int(found.declaration_result.message_count)

    return int(broker(stack, look))


def publish(stack: Stack, queue: str, *messages: aio_pika.Message) -> None:
    async def send(channel: Any) -> None:
        for message in messages:
            await channel.default_exchange.publish(message, routing_key=queue)

    broker(stack, send)


def refusals(stack: Stack, submission: dict[str, Any]) -> list[str]:
    """The names of the callbacks about this submission that were refused, each with one event."""

    async def run() -> list[str]:
        made = stack.main()
        async with made.app:
            events = await made.app.events.list(job_id=submission["submissionId"])
        return sorted(event.meta["name"] for event in events if event.kind == "stale_write")

    return asyncio.run(run())


def charge_of(stack: Stack, submission: dict[str, Any]) -> Cost:
    return stack.ledger.charges()[submission["requestId"]]


def charge_of_one_call(stack: Stack) -> Cost:
    """What the same text costs when nothing goes wrong."""
    undisturbed = stack.submit()
    assert stack.ended(undisturbed)["status"] == "COMPLETED"
    assert len(stack.calls(undisturbed)) == 1
    return charge_of(stack, undisturbed)


def kinds(stack: Stack, submission: dict[str, Any]) -> list[str]:
    return [event["event"] for event in stack.events(submission)]


# -- failure modes ------------------------------------------------------------------------------------------------------------
def test_while_the_relay_is_down_submissions_are_saved_and_it_catches_up_when_it_is_back(
    grading: Stack,
) -> None:  # G8
    grading.kill("relay")
    submissions = [grading.submit() for _ in range(3)]
    pending = grading.http.get("/outbox", params={"submission": submissions[0]["submissionId"]}).json()[
        "messages"
    ]
    assert [(one["status"], one["retry_count"]) for one in pending] == [("pending", 0)]
    grading.start("relay")
    assert [grading.ended(one)["status"] for one in submissions] == ["COMPLETED"] * 3


def test_a_request_that_comes_five_times_is_graded_and_charged_once(grading: Stack) -> None:  # G3
    grading.fault(latency_ms=500, times=1)
    submission = grading.submit()
    grading.until(lambda: grading.calls(submission))
    request = {"requestId": submission["requestId"], "submissionId": submission["submissionId"]}
    task = encode_task(
        "grading.grade",
        kwargs={"request": request | {"skill": "writing", "text": "It rains."}},
        task_id=submission["requestId"],
    )
    copy = aio_pika.Message(task.body, headers=dict(task.headers), content_type="application/json")
    publish(grading, REQUESTS, *[copy] * 2)  # it is in hand: they are put off
    assert grading.ended(submission)["status"] == "COMPLETED"
    publish(grading, REQUESTS, *[copy] * 2)  # it has ended: they are told so
    grading.until(lambda: depth(grading, REQUESTS) == 0)
    assert charge_of(grading, submission) == charge_of_one_call(grading)
    assert len(grading.calls(submission)) == 1
    assert kinds(grading, submission).count("complete") == 1


def test_an_outage_of_the_provider_is_retried_three_times_and_then_a_dead_letter(
    grading: Stack,
) -> None:  # G4
    grading.fault(status=503)
    submission = grading.submit()
    ended = grading.ended(submission)
    assert (ended["status"], ended["failureReason"]) == ("FAILED", "RETRIES_EXHAUSTED")
    assert len(grading.calls(submission)) == 4
    [letter] = [one for one in grading.dead_letters() if one["requestId"] == submission["requestId"]]
    assert letter["submissionId"] == submission["submissionId"]
    assert (letter["failureReason"], letter["attemptsMade"]) == ("RETRIES_EXHAUSTED", 4)
    assert letter["lastError"] == "PROVIDER_ERROR: the provider answered 503"
    assert letter["timestamp"]
    # By hand, and only by hand: a new request, which is graded.
    grading.heal()
    answer = grading.http.post(f"/dlq/{submission['requestId']}/recover").json()
    assert answer["requestId"] == f"{submission['submissionId']}.2"
    assert grading.ended(submission)["status"] == "COMPLETED"
    assert submission["requestId"] not in [one["requestId"] for one in grading.dead_letters()]
    charged = grading.ledger.charges()
    assert submission["requestId"] not in charged
    assert answer["requestId"] in charged


def test_a_recording_that_cannot_be_decoded_is_a_dead_letter_at_once_and_nobody_is_asked(
    grading: Stack,
) -> None:  # G4
    submission = grading.speak(make_recording("hello")[:-50])
    ended = grading.ended(submission)
    assert (ended["status"], ended["failureReason"]) == ("FAILED", "AUDIO_DECODE_ERROR")
    assert grading.calls(submission) == []
    [letter] = [one for one in grading.dead_letters() if one["requestId"] == submission["requestId"]]
    assert (letter["failureReason"], letter["attemptsMade"]) == ("AUDIO_DECODE_ERROR", 1)
    assert kinds(grading, submission) == ["queued", "processing", "failed"]


def test_a_recording_is_transcribed_and_graded(grading: Stack) -> None:  # G3
    ended = grading.ended(grading.speak(make_recording("I speak, because I can.")))
    assert ended["status"] == "COMPLETED"
    assert ended["result"]["transcript"] == "I speak, because I can."
    assert 0 <= ended["result"]["overall"] <= 9


class Outage(NamedTuple):
    under_way: dict[str, Any]  #: at the provider when the broker was lost
    meanwhile: list[dict[str, Any]]  #: submitted while there was none
    pending: list[str]  #: their statuses then
    tries: list[int]  #: the retry_count of the first message, from look to look
    expired: dict[str, Any]  #: submitted then, and past its deadline before the broker was back


@pytest.fixture(scope="module")
def outage(shared: Stack, wire: Proxy, own_rabbitmq: RabbitMq) -> Outage:
    """The broker is killed while the provider thinks, and started again."""
    put_right(shared, wire, own_rabbitmq)
    shared.fault(latency_ms=1500, times=1)
    under_way = shared.submit()
    shared.until(lambda: shared.calls(under_way))
    own_rabbitmq.kill()
    meanwhile = [shared.submit() for _ in range(3)]
    expired = _submit_with_sla(shared, 1000)
    tries = [shared.until(lambda: retry_count(shared, meanwhile[0]))]
    tries.append(shared.until(lambda: (now := retry_count(shared, meanwhile[0])) > tries[0] and now))
    shared.until(lambda: under_way["requestId"] in shared.ledger.charges())
    assert shared.ended(expired)["failureReason"] == "TIMEOUT"
    pending = [shared.look(one)["status"] for one in meanwhile]
    own_rabbitmq.start()
    shared.heal()
    return Outage(under_way, meanwhile, pending, tries, expired)


def retry_count(stack: Stack, submission: dict[str, Any]) -> int:
    asked = {"submission": submission["submissionId"]}
    [message] = stack.http.get("/outbox", params=asked).json()["messages"]
    return int(message["retry_count"])


def test_a_callback_that_finds_no_broker_arrives_when_it_is_back(
    grading: Stack, outage: Outage
) -> None:  # G6
    assert grading.ended(outage.under_way, 40)["status"] == "COMPLETED"
    assert kinds(grading, outage.under_way).count("complete") == 1
    assert outage.under_way["requestId"] in grading.ledger.charges()


def test_submissions_made_while_the_broker_is_down_are_graded_when_it_is_back(  # G8
    grading: Stack, outage: Outage
) -> None:
    assert outage.pending == ["PENDING"] * 3
    assert [grading.ended(one, 40)["status"] for one in outage.meanwhile] == ["COMPLETED"] * 3
    charges = grading.ledger.charges()
    assert all(one["requestId"] in charges and len(grading.calls(one)) == 1 for one in outage.meanwhile)


def test_tries_to_publish_are_counted_while_the_broker_is_away(outage: Outage) -> None:  # G2
    first, second = outage.tries
    assert 0 < first < second


def test_a_submission_that_timed_out_during_the_outage_is_neither_published_nor_paid(  # E15 G3
    grading: Stack, outage: Outage
) -> None:
    """Those behind it were graded: its message was looked at before them."""
    assert [grading.ended(one, 40)["status"] for one in outage.meanwhile] == ["COMPLETED"] * 3
    asked = {"submission": outage.expired["submissionId"]}
    assert grading.http.get("/outbox", params=asked).json()["messages"] == []
    assert grading.calls(outage.expired) == []
    assert outage.expired["requestId"] not in grading.ledger.charges()
    assert outage.expired["requestId"] not in [one["requestId"] for one in grading.dead_letters()]


def test_after_three_quick_flaps_of_the_broker_everybody_goes_on(grading: Stack, wire: Proxy) -> None:  # G8
    before = {name: process.pid for name, process in grading.running.items()}
    meanwhile = grading.submit()
    wire.flap()
    assert [grading.ended(one, 30)["status"] for one in (meanwhile, grading.submit())] == ["COMPLETED"] * 2
    assert all(process.poll() is None for process in grading.running.values())
    assert {name: process.pid for name, process in grading.running.items()} == before


def test_what_a_red_test_leaves_broken_is_mended_before_the_next(
    grading: Stack, wire: Proxy, own_rabbitmq: RabbitMq
) -> None:
    wire.refuse = True
    grading.kill("celery")
    os.killpg(grading.running["relay"].pid, signal.SIGKILL)  # it died by itself, unnoticed
    grading.running["relay"].wait(10)
    grading.fault(hang=True)
    mended = put_right(grading, wire, own_rabbitmq)
    assert mended.ended(mended.submit(), 30)["status"] == "COMPLETED"


def test_a_callback_that_was_purged_is_told_again(grading: Stack) -> None:  # G6
    grading.kill("callbacks")
    submission = grading.submit()
    grading.until(lambda: submission["requestId"] in grading.ledger.charges())
    grading.until(lambda: depth(grading, CALLBACKS) >= 2)
    broker(grading, lambda channel: _purge(channel, CALLBACKS))
    grading.start("callbacks")
    assert grading.ended(submission)["status"] == "COMPLETED"
    assert len(grading.calls(submission)) == 1  # the ledger knew the answer


def test_a_broker_that_was_purged_is_told_again_and_nothing_is_lost(grading: Stack) -> None:  # E45
    grading.kill("celery")
    submissions = [grading.submit() for _ in range(3)]
    grading.until(lambda: depth(grading, REQUESTS) >= 3)
    broker(grading, lambda channel: _purge(channel, REQUESTS))
    grading.start("celery")
    assert [grading.ended(one)["status"] for one in submissions] == ["COMPLETED"] * 3


def test_bad_callbacks_are_put_aside_once_with_the_reason_and_change_nothing(grading: Stack) -> None:  # G6
    grading.fault(hang=True)
    submission = grading.submit()
    grading.until(lambda: grading.look(submission)["status"] == "PROCESSING")
    name = submission["requestId"]
    body = b'{"requestId": "%b", "status": "completed"}' % name.encode()
    before = depth(grading, REFUSED)
    publish(
        grading,
        CALLBACKS,
        aio_pika.Message(body, message_id=name, content_type="application/json"),
        aio_pika.Message(body, message_id=name, headers={"holdfast-signature": "v1=00"}, content_type="application/json"),
        aio_pika.Message(b"\x80\x04.", message_id=name, content_type="application/x-python-serialize"),
        aio_pika.Message(b"\xff", message_id=name, headers=dict(sign(SECRET, name, b"\xff")), content_type="application/json"),
        aio_pika.Message(b"x" * 2_000_000, message_id=name, content_type="application/json"),
    )  # fmt: skip
    grading.until(lambda: depth(grading, REFUSED) == before + 5)
    assert depth(grading, CALLBACKS) == 0
    assert grading.look(submission)["status"] == "PROCESSING"
    reasons = broker(grading, lambda channel: _reasons(channel, before + 5))
    assert sum("not signed" in one for one in reasons) >= 1
    assert sum("no signature fits" in one for one in reasons) >= 1
    assert sum("content type" in one for one in reasons) >= 1
    assert refusals(grading, submission) == ["content type", "forged", "too large", "unreadable", "unsigned"]
    grading.heal()
    assert grading.ended(submission)["status"] == "COMPLETED"


def test_callbacks_that_come_again_or_too_late_for_their_request_leave_one_event_each(
    grading: Stack,
) -> None:  # G6
    submission = grading.submit()
    assert grading.ended(submission)["status"] == "COMPLETED"
    name = submission["requestId"]

    def callback(status: str, **more: Any) -> aio_pika.Message:
        told = {"requestId": name, "submissionId": submission["submissionId"], "status": status}
        told |= {"attempt": 1, "worker": "celery@test", "timestamp": "2026-01-01T00:00:00+00:00", **more}
        body = json.dumps(told).encode()
        headers: dict[str, Any] = dict(sign(SECRET, name, body))
        return aio_pika.Message(body, message_id=name, headers=headers, content_type="application/json")

    failed = callback("failed", error={"code": "AUDIO_DECODE_ERROR", "message": "why"})
    publish(grading, CALLBACKS, *[failed] * 3)
    grading.until(lambda: refusals(grading, submission) == ["again 1"])
    name = f"{submission['submissionId']}.7"  # another generation than there is
    publish(grading, CALLBACKS, *[callback("processing")] * 3)
    grading.until(lambda: refusals(grading, submission) == ["again 1", "generation 7"])
    assert grading.ended(submission)["status"] == "COMPLETED"


# -- acceptance ----------------------------------------------------------------------------------------------------------------
def test_a_worker_killed_in_the_middle_leaves_one_result_and_one_charge(grading: Stack) -> None:  # G8
    grading.fault(hang=True)
    submission = grading.submit()
    grading.until(lambda: grading.calls(submission))
    grading.kill("celery")
    grading.heal()
    grading.start("celery")
    assert grading.ended(submission, 30)["status"] == "COMPLETED"
    assert len(grading.calls(submission)) == 2
    assert kinds(grading, submission).count("complete") == 1
    assert charge_of(grading, submission) == charge_of_one_call(grading)


def test_a_429_is_tried_again_after_what_it_asked_for(grading: Stack) -> None:  # G3
    grading.fault(status=429, retry_after=2, times=1)
    submission = grading.submit()
    assert grading.ended(submission)["status"] == "COMPLETED"
    first, second = [call["at"] for call in grading.calls(submission)]
    assert second - first >= 2.0  # the plain wait would be a tenth of a second


def test_a_429_that_asks_for_more_than_is_left_ends_it_at_once(grading: Stack) -> None:  # E15 G3
    grading.fault(status=429, retry_after=1000, times=1)
    submission = _submit_with_sla(grading, 120_000)
    ended = grading.ended(submission)  # long before its deadline
    assert (ended["status"], ended["failureReason"]) == ("FAILED", "TIMEOUT")
    assert len(grading.calls(submission)) == 1
    [letter] = [one for one in grading.dead_letters() if one["requestId"] == submission["requestId"]]
    assert letter["failureReason"] == "TIMEOUT"
    assert letter["lastError"].startswith("PROVIDER_THROTTLED")
    assert submission["requestId"] not in grading.ledger.charges()


def test_a_models_answer_that_breaks_the_schema_is_a_dead_letter_after_one_call(grading: Stack) -> None:  # G4
    grading.fault(content="a solid seven", times=1)
    submission = grading.submit()
    ended = grading.ended(submission)
    assert (ended["status"], ended["failureReason"]) == ("FAILED", "INVALID_SCHEMA")
    assert len(grading.calls(submission)) == 1
    [letter] = [one for one in grading.dead_letters() if one["requestId"] == submission["requestId"]]
    assert letter["attemptsMade"] == 1


def test_after_the_deadline_it_stays_failed_and_the_late_result_is_kept_beside_it(
    grading: Stack,
) -> None:  # G6
    before = grading.http.get("/progress").json()
    grading.fault(latency_ms=4000, times=1)
    submission = _submit_with_sla(grading, 800)
    events = grading.events(submission)
    assert [event["event"] for event in events][-1] == "timed_out"
    assert events[-1]["failureReason"] == "TIMEOUT"
    late = grading.until(lambda: grading.look(submission)["lateResults"])
    assert [(one["isLate"], one["outcome"]) for one in late] == [(True, "complete")]
    found = grading.look(submission)
    assert (found["status"], found["failureReason"], found["result"]) == ("FAILED", "TIMEOUT", None)
    assert grading.http.get("/progress").json() == before


def test_poison_is_a_dead_letter_once_and_the_worker_lives_on(grading: Stack) -> None:  # G4
    before = len(grading.dead_letters())
    good = {"task": "grading.grade", "id": "01a1e359-297e-75e7-bba9-287684a79c65.1"}
    json_, none = "application/json", None
    poison: list[tuple[bytes, str | None, dict[str, Any] | None]] = [
        (b"5", json_, good),
        (b"[[], {}, {}]", json_, good),
        (b"\xff\xfe", json_, good),
        (b"\x80\x04cos\nsystem\n.", "application/x-python-serialize", good),
        (b"[[], {}, {}]", json_, {"task": "no.such.task", "id": "1"}),
        (b"[[], {}, {}]", json_, {"task": "grading.grade"}),
        (b"nothing at all", none, none),
        (b"x" * 2_000_000, json_, good),
    ]
    publish(
        grading,
        REQUESTS,
        *[aio_pika.Message(body, content_type=kind, headers=headers or {}) for body, kind, headers in poison],
    )
    assert grading.ended(grading.submit())["status"] == "COMPLETED"
    letters = grading.until(lambda: len(found := grading.dead_letters()) >= before + len(poison) and found)
    assert len(letters) == before + len(poison)
    fields = {"requestId", "submissionId", "failureReason", "attemptsMade", "lastError", "timestamp"}
    assert all(fields <= one.keys() and one["failureReason"] and one["lastError"] for one in letters)
    assert depth(grading, REQUESTS) == 0
    assert grading.ended(grading.submit())["status"] == "COMPLETED"
    assert len(grading.dead_letters()) == before + len(poison)
    assert depth(grading, DEAD) == before + len(poison)


def test_a_bad_copy_of_a_request_in_hand_changes_nothing(grading: Stack) -> None:  # G4
    grading.fault(latency_ms=700, times=1)
    submission = grading.submit()
    grading.until(lambda: grading.calls(submission))
    before = depth(grading, DEAD)
    publish(grading, REQUESTS, bad_copy(submission))
    grading.until(lambda: depth(grading, DEAD) == before + 1)
    assert grading.ended(submission)["status"] == "COMPLETED"
    assert "failed" not in kinds(grading, submission)


def test_a_request_that_comes_only_as_nonsense_fails_its_submission_at_once(grading: Stack) -> None:  # G4
    grading.kill("relay")
    submission = grading.submit()
    publish(grading, REQUESTS, bad_copy(submission))
    ended = grading.ended(submission)
    assert (ended["status"], ended["failureReason"]) == ("FAILED", "INVALID_MESSAGE")
    grading.start("relay")  # which brings the request itself: it is too late, and costs nothing
    grading.until(lambda: refusals(grading, submission))
    assert grading.calls(submission) == []
    assert submission["requestId"] not in grading.ledger.charges()
    # By hand at the command line, it is graded after all.
    done = grading.holdfast("grading", "dlq", "recover", submission["requestId"])
    assert json.loads(done.stdout)["requestId"] == f"{submission['submissionId']}.2"
    assert grading.ended(submission)["status"] == "COMPLETED"


def bad_copy(submission: dict[str, Any]) -> aio_pika.Message:
    headers: dict[str, Any] = {"task": "grading.grade", "id": submission["requestId"]}
    return aio_pika.Message(b"5", content_type="application/json", headers=headers)


def test_operators_see_dead_letters_at_the_command_line_and_strike_them(grading: Stack) -> None:  # G4
    raw = aio_pika.Message(b"\xff raw", headers={"id": "x"})  # as the broker itself would put it there
    publish(grading, DEAD, raw)
    listed = json.loads(grading.holdfast("grading", "dlq", "list", "--limit", "500").stdout)
    [found] = [one for one in listed if one["request"].endswith(" raw")]
    assert (found["requestId"], found["failureReason"]) == ("", "INVALID_MESSAGE")
    struck = json.loads(grading.holdfast("grading", "dlq", "discard", "").stdout)["discarded"]
    assert struck == sum(one["requestId"] == "" for one in listed)
    refused = grading.holdfast("grading", "dlq", "recover", "01a1e359-297e-75e7-bba9-000000000000.1")
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1


def test_the_breaker_opens_holds_without_using_retries_and_closes_after_good_trials(
    grading: Stack,
) -> None:  # G7
    grading.fault(status=500)
    submissions = [grading.submit() for _ in range(10)]
    opened = grading.until(lambda: (found := breaker(grading))["state"] == "open" and found)
    held = [grading.submit() for _ in range(3)]
    grading.until(lambda: all("CIRCUIT_OPEN" in _whys(grading, one) for one in held))
    grading.heal()
    assert [grading.ended(one, 60)["status"] for one in held] == ["COMPLETED"] * 3
    # What was let through before it opened may arrive at any time; of those that came later, none before the cooldown is over.
    since = datetime.fromisoformat(opened["since"]).timestamp() - time.time() + time.monotonic()
    calls = [call["at"] - since for one in held for call in grading.calls(one)]
    assert [at for at in calls if at < COOLDOWN * 0.9] == []
    for one in submissions:
        ended = grading.ended(one, 60)
        assert ended["status"] == "COMPLETED" or ended["failureReason"] == "RETRIES_EXHAUSTED"
        assert len(grading.calls(one)) <= 4
    grading.until(lambda: breaker(grading)["state"] == "closed")


def breaker(stack: Stack) -> dict[str, Any]:
    """The breaker of the provider, as `holdfast breakers` shows it to operators."""
    done = stack.holdfast("breakers", "list", "--json")
    [found] = json.loads(done.stdout)["breakers"]
    assert found["dependency"] == "provider"
    return dict(found)


def test_two_workers_and_killed_readers_end_each_submission_once(grading: Stack) -> None:  # G8
    grading.start("celery:two")
    grading.fault(latency_ms=100)
    submissions = [grading.submit(f"Number {n}, because.") for n in range(20)]
    grading.kill("callbacks")
    grading.kill("celery")
    grading.kill("relay")
    for name in ("relay", "callbacks", "celery"):
        grading.start(name)
    assert [grading.ended(one, 40)["status"] for one in submissions] == ["COMPLETED"] * 20
    assert all(kinds(grading, one).count("complete") == 1 for one in submissions)
    charges = grading.ledger.charges()
    assert all(one["requestId"] in charges for one in submissions)
    grading.stop("celery:two")


def _submit_with_sla(grading: Stack, milliseconds: int) -> dict[str, Any]:
    from dataclasses import replace

    from systems.grading.settings import Settings

    settings = replace(Settings.read(grading.environment), sla_writing_ms=milliseconds)

    async def run() -> dict[str, Any]:
        made = build(settings)
        async with made.app:
            row = await submit(made, "writing", text="Late, because slow.")
            return {"submissionId": row.id, "requestId": f"{row.id}.1"}

    return asyncio.run(run())


def _whys(grading: Stack, submission: dict[str, Any]) -> list[str]:
    async def run() -> list[str]:
        made = grading.main()
        async with made.app:
            events = await made.app.events.list(job_id=submission["submissionId"])
        return [str(event.meta) for event in events]

    return [word for meta in asyncio.run(run()) for word in ("CIRCUIT_OPEN",) if word in meta]


async def _purge(channel: Any, queue: str) -> None:
    found = await channel.get_queue(queue, ensure=False)
    await found.purge()


async def _reasons(channel: Any, most: int) -> list[str]:
    queue = await channel.get_queue(REFUSED, ensure=False)
    found = [await queue.get(fail=False) for _ in range(most)]
    return [str(one.headers.get("refused-because")) for one in found if one is not None]
