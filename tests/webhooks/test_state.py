"""When a webhook is given up, by a clock that moves when it is told to; and what tells its jobs apart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.engine.cloudevent import GONE, Subject
from holdfast.jobs.job import Event, JobId
from holdfast.webhooks.delivery import DISABLE_AFTER, RETRY, DeliveryRefused, meaning
from holdfast.webhooks.model import Webhook
from holdfast.webhooks.selection import TASK, delivery_id, is_webhook_job, message_id, wants

NOW = datetime(2026, 5, 1, tzinfo=UTC)
WEBHOOK = Webhook(id="wh_1", url="https://1.1.1.1/", events=(), owner=None, seeds=(), created_at=NOW)


def event(kind: str, job_id: str = "0190a0b0-1111-7abc-8def-0123456789ab") -> Event:
    return Event(id=1, at=NOW, kind=kind, job_id=JobId(job_id), epoch=1, attempt=1)


def test_a_webhook_is_disabled_when_it_has_failed_for_three_days_and_not_before() -> None:  # E61
    webhook = WEBHOOK
    for hours in (0, 1, 30, 71):
        webhook = webhook.answered(well=False, now=NOW + timedelta(hours=hours), disable_after=DISABLE_AFTER)
        assert webhook.is_enabled
    gone = webhook.answered(well=False, now=NOW + timedelta(hours=72), disable_after=DISABLE_AFTER)
    assert (gone.is_enabled, gone.disabled_reason) == (False, "no delivery has succeeded for 3d")
    well = webhook.answered(well=True, now=NOW + timedelta(hours=71), disable_after=DISABLE_AFTER)
    again = well.answered(well=False, now=NOW + timedelta(hours=100), disable_after=DISABLE_AFTER)
    assert again.is_enabled


def test_a_message_is_tried_for_about_three_days() -> None:  # E61
    waits = [RETRY.backoff.delay(attempt, 0.5) for attempt in range(1, RETRY.max_attempts)]
    assert waits[0] == timedelta(seconds=5)
    assert timedelta(days=3) < sum(waits, timedelta()) < timedelta(days=3.5)


@pytest.mark.parametrize(
    ("events", "kind", "told"),
    [
        ((), "complete", True),
        ((), "failed", True),
        ((), "timed_out", True),
        ((), "cancelled", True),
        ((), "rejected", True),
        ((), "queued", False),
        ((), "retry", False),
        (("retry",), "retry", True),
        (("retry",), "complete", False),
        (("*",), "stale_write", True),
    ],
)
def test_a_webhook_wants_the_kinds_it_names_or_the_ends(
    events: tuple[str, ...], kind: str, told: bool
) -> None:
    webhook = Webhook(id="wh_1", url="", events=events, owner=None, seeds=(), created_at=NOW)
    assert wants(webhook, event(kind), Subject(task="convert", queue="q", owner=None)) is told


def test_our_own_jobs_are_known_by_their_task_and_when_they_are_gone_by_their_ids() -> None:
    own = delivery_id("msg_wh_1_7", NOW)
    assert is_webhook_job(own, Subject(task=TASK, queue="q", owner=None))
    assert is_webhook_job(own, GONE)
    assert not is_webhook_job(event("complete").job_id, GONE)
    # A user may have made an id of this version.
    assert not is_webhook_job(own, Subject(task="convert", queue="q", owner=None))


def test_the_id_of_a_message_and_of_its_job_are_the_same_wherever_they_are_made() -> None:
    message = message_id("wh_1", 7)
    assert delivery_id(message, NOW) == delivery_id(message, NOW)
    ids = {delivery_id(message_id(f"wh_{w}", n), NOW) for w in range(100) for n in range(100)}
    assert len(ids) == 10_000
    assert delivery_id(message, NOW) != delivery_id(message, NOW, "replay")
    assert delivery_id(message, NOW) < delivery_id(message, NOW + timedelta(seconds=1))


def test_nothing_of_an_answer_is_kept_but_its_status_and_when_to_come_back() -> None:  # E61
    refused = DeliveryRefused(503, {"retry-after": "7", "set-cookie": "canary", "x": "canary"})
    assert "canary" not in str(refused)
    assert refused.headers == {"retry-after": "7"}
    said = meaning(refused)
    assert said is not None
    assert (str(said), said.code) == ("the endpoint answered 503", "HTTP_5XX")
