"""Select the events for a webhook, and make the ids of its messages and jobs. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any
from uuid import UUID

from holdfast.engine.cloudevent import GONE, Subject
from holdfast.errors import UsageError
from holdfast.jobs.job import Event, JobId
from holdfast.jobs.moves import Kind
from holdfast.values.suggest import suggest
from holdfast.webhooks.model import Webhook

#: The internal jobs of webhooks. Their events are not sent, or every message would cause another one.
TASK, QUEUE = "holdfast.webhook", "holdfast.webhooks"
INBOUND_TASK = "holdfast.inbound"
WEBHOOK_TASKS = frozenset({TASK, INBOUND_TASK})

#: The events for a webhook without its own choice.
DEFAULT_EVENTS = frozenset(
    kind.name for kind in (Kind.complete, Kind.failed, Kind.timed_out, Kind.cancelled, Kind.rejected)
)
EVERYTHING = "*"
#: How old an event may be when a webhook is created, and still be sent to it: its transaction may have ended
#: later.
SHORTLY_BEFORE = timedelta(minutes=10)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_events(events: Any) -> tuple[str, ...]:
    """Return the chosen kinds of events as a tuple without repeats. "*" stands for all.

    Raises:
        UsageError: A kind does not exist.
    """
    names = (events,) if isinstance(events, str) else tuple(events or ())
    known = [*Kind.__members__, EVERYTHING]
    for name in names:
        if name not in known:
            raise UsageError(f"no event {str(name)[:40]!r}; {suggest(str(name)[:40], known)}")
    return tuple(dict.fromkeys(names))


def wants(webhook: Webhook, event: Event, subject: Subject) -> bool:
    """Return whether *webhook* wants *event*: its kind and owner fit, and it is not about a webhook job."""
    if event.kind not in (webhook.events or DEFAULT_EVENTS) and EVERYTHING not in webhook.events:
        return False
    if webhook.owner is not None and webhook.owner != subject.owner:
        return False
    return not is_webhook_job(event.job_id, subject)


def existed_at(webhook: Webhook, event: Event) -> bool:
    """Return whether *webhook* existed when *event* happened, or was created shortly after."""
    return event.at >= webhook.created_at - SHORTLY_BEFORE


def is_webhook_job(job_id: JobId, subject: Subject) -> bool:
    """Return whether a job is an internal job of webhooks. A removed one is recognized by its id."""
    return subject.task in WEBHOOK_TASKS or (subject == GONE and job_id[14:15] == "8")


def message_id(webhook_id: str, event_id: int) -> str:
    """Return the id of a message.

    It is the same for every attempt and replay, so receivers can ignore repeats.
    """
    return f"msg_{webhook_id}_{event_id}"


def delivery_id(message: str, at: datetime, replay: str = "") -> JobId:
    """Return the id of the job that sends *message*.

    Every process computes the same id, so the job is created once. Like all ids it grows with time, but its
    UUID version is 8.
    """
    digest = int.from_bytes(blake2b(f"{message}\x1f{replay}".encode(), digest_size=10).digest(), "big")
    milliseconds = max(0, (at - _EPOCH) // timedelta(milliseconds=1))
    version_8 = milliseconds << 80 | 0x8 << 76 | (digest >> 68) << 64 | 0b10 << 62 | (digest & (1 << 62) - 1)
    return JobId(str(UUID(int=version_8)))


def active_outbound(webhooks: Sequence[Webhook]) -> list[Webhook]:
    """Return the webhooks to which events are sent now."""
    return [webhook for webhook in webhooks if webhook.is_enabled and not webhook.inbound]


def is_only_outbound(webhook_id: str, webhooks: Collection[Webhook]) -> bool:
    """Return whether no other webhook gets events now."""
    return not any(webhook.id != webhook_id for webhook in active_outbound(list(webhooks)))
