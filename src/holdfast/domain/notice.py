"""What a notifier is called with: an event, and what is worth knowing about its job."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """An event for a notifier. *id* is the event's: the same each time the notifier is called for it."""

    id: int
    at: datetime
    kind: str
    job_id: str | None  #: None: it happened to a breaker or a pause, not to a job
    task: str | None  #: None, like *queue* and *owner*: there is no job, or it was removed
    queue: str | None
    owner: str | None
    attempt: int
    meta: dict[str, Any] = field(default_factory=dict)  #: secrets are hidden
