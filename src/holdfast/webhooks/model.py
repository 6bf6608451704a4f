"""Webhooks: which URLs receive which events."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from holdfast.values.duration import format_duration


@dataclass(frozen=True, slots=True)
class Seed:
    """What is stored of a secret: enough to derive it with the key of the app, and nothing without that key."""

    salt: str
    check: str  #: proves that a key is the one the secret was derived from
    until: datetime | None = None  #: when the older secret ends during a rotation


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A URL that receives events, or (*inbound*) a sender that may ask for retries by signed messages."""

    id: str
    url: str  #: "" for inbound ones
    events: tuple[str, ...]  #: kinds of events; none: the ends of jobs
    owner: str | None  #: only events about jobs of this owner; None for all
    seeds: tuple[Seed, ...]  #: newest first; during a rotation there are two
    inbound: bool = False
    description: str = ""
    created_at: datetime
    failing_since: datetime | None = None
    disabled_at: datetime | None = None
    disabled_reason: str | None = None
    #: `whsec_…`, newest first; set only right after a rotation and where messages are signed.
    secrets: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @property
    def is_enabled(self) -> bool:
        return self.disabled_at is None

    def answered(self, *, well: bool, now: datetime, disable_after: timedelta) -> Webhook:
        """Return the webhook after one more delivery.

        It is disabled once deliveries have failed for *disable_after*. A success does not enable it again.
        """
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
