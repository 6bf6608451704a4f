"""What a notifier is called with: an event and facts about its job."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """An event for a notifier. *id* is that of the event, the same in every call for it."""

    id: int
    at: datetime
    kind: str
    job_id: str | None  #: None when it happened to a breaker or a pause
    task: str | None  #: None, like *queue* and *owner*, when there is no job or it was removed
    queue: str | None
    owner: str | None
    attempt: int
    meta: dict[str, Any] = field(default_factory=dict)  #: secrets are hidden
