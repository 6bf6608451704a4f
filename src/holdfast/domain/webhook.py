"""Webhooks: who is told of which events. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An address that is told of events, or (*inbound*) one that may ask for retries by signed messages."""

    id: str
    url: str  #: "" for inbound ones
    events: tuple[str, ...]  #: kinds of events; none: the ends of jobs
    owner: str | None  #: whose jobs it is told about; None: everybody's
    secrets: tuple[str, ...]  #: `whsec_…`, newest first; during a rotation there are two
    inbound: bool = False
    description: str = ""
    created_at: datetime
    failing_since: datetime | None = None
    disabled_at: datetime | None = None
    disabled_reason: str | None = None

    @property
    def is_enabled(self) -> bool:
        return self.disabled_at is None
