"""Webhooks: who is told of which events. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from holdfast.domain.duration import format_duration


@dataclass(frozen=True, slots=True)
class Seed:
    """What is stored of a secret: enough to make it again with the key of the app, and nothing without it."""

    salt: str
    check: str  #: tells whether a key is the one that the secret was made with
    until: datetime | None = None  #: of the older one during a rotation


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An address that is told of events, or (*inbound*) one that may ask for retries by signed messages."""

    id: str
    url: str  #: "" for inbound ones
    events: tuple[str, ...]  #: kinds of events; none: the ends of jobs
    owner: str | None  #: whose jobs it is told about; None: everybody's
    seeds: tuple[Seed, ...]  #: newest first; during a rotation there are two
    inbound: bool = False
    description: str = ""
    created_at: datetime
    failing_since: datetime | None = None
    disabled_at: datetime | None = None
    disabled_reason: str | None = None
    #: `whsec_…`, newest first. Known only where they have just been made, or are needed to sign.
    secrets: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @property
    def is_enabled(self) -> bool:
        return self.disabled_at is None

    def answered(self, *, well: bool, now: datetime, disable_after: timedelta) -> Webhook:
        """After one more delivery. What has failed since *disable_after* ago is disabled; a success does not enable it."""
        if well:
            return replace(self, failing_since=None)
        since = self.failing_since or now
        if self.disabled_at is not None or now - since < disable_after:
            return replace(self, failing_since=since)
        reason = (
            f"no delivery has succeeded for {format_duration(disable_after)}"
            if disable_after
            else "its endpoint is gone"
        )
        return replace(self, failing_since=since, disabled_at=now, disabled_reason=reason)
