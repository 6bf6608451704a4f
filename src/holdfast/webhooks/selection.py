"""Which events a webhook is told about, and the job that tells it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any
from uuid import UUID

from holdfast.domain.cloudevent import GONE, Subject
from holdfast.domain.job import Event, JobId
from holdfast.domain.moves import Kind
from holdfast.domain.suggest import suggest
from holdfast.domain.webhook import Webhook
from holdfast.errors import UsageError

#: Our own jobs: what they do is not told, or every message would make the next.
TASK, QUEUE = "holdfast.webhook", "holdfast.webhooks"
INBOUND_TASK = "holdfast.inbound"
OURS = frozenset({TASK, INBOUND_TASK})

#: What a webhook without a choice of its own is told.
ENDS = frozenset(
    kind.name for kind in (Kind.complete, Kind.failed, Kind.timed_out, Kind.cancelled, Kind.rejected)
)
EVERYTHING = "*"
#: What happened not longer ago when a webhook was made may be told to it: its transaction may have ended later.
SHORTLY_BEFORE = timedelta(minutes=10)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_events(events: Any) -> tuple[str, ...]:
    """The kinds of events that somebody asks for; "*" for all."""
    names = (events,) if isinstance(events, str) else tuple(events or ())
    known = [*Kind.__members__, EVERYTHING]
    for name in names:
        if name not in known:
            raise UsageError(f"no event {str(name)[:40]!r}; {suggest(str(name)[:40], known)}")
    return tuple(dict.fromkeys(names))


def wants(webhook: Webhook, event: Event, subject: Subject) -> bool:
    """Whether it is to be told: its kind of event, its owner's job, and nothing that telling itself has caused."""
    if event.kind not in (webhook.events or ENDS) and EVERYTHING not in webhook.events:
        return False
    if webhook.owner is not None and webhook.owner != subject.owner:
        return False
    return not is_ours(event.job_id, subject)


def was_there(webhook: Webhook, event: Event) -> bool:
    """Whether the event is of its time."""
    return event.at >= webhook.created_at - SHORTLY_BEFORE


def is_ours(job_id: JobId, subject: Subject) -> bool:
    """Whether a job is one of our own; by its id where nothing else is left of it."""
    return subject.task in OURS or (subject == GONE and job_id[14:15] == "8")


def message_id(webhook_id: str, event_id: int) -> str:
    """The same for every attempt, and for a replay too: who has seen it may pass it by."""
    return f"msg_{webhook_id}_{event_id}"


def delivery_id(message: str, at: datetime, replay: str = "") -> JobId:
    """The id of the job that sends this *message*: the same wherever it is made, so that it is made once. Like all ids it
    grows with time; its version, 8, is its own."""
    digest = int.from_bytes(blake2b(f"{message}\x1f{replay}".encode(), digest_size=10).digest(), "big")
    milliseconds = max(0, (at - _EPOCH) // timedelta(milliseconds=1))
    version_8 = milliseconds << 80 | 0x8 << 76 | (digest >> 68) << 64 | 0b10 << 62 | (digest & (1 << 62) - 1)
    return JobId(str(UUID(int=version_8)))


def open_ones(webhooks: Sequence[Webhook]) -> list[Webhook]:
    """Those that are told of events now."""
    return [webhook for webhook in webhooks if webhook.is_enabled and not webhook.inbound]


def is_alone(webhook_id: str, webhooks: Collection[Webhook]) -> bool:
    """Whether nobody else is told of events."""
    return not any(webhook.id != webhook_id for webhook in open_ones(list(webhooks)))
