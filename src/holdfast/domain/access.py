"""Who may do what through a front door: keys, their roles, and what each role may do. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Role(StrEnum):
    """What a key is for. Each may do what is written at `Action.allowed_to`."""

    VIEWER = "viewer"  #: sees everything, changes nothing
    OWNER = "owner"  #: enqueues, sees and steers its own jobs, and nobody else's
    OPERATOR = "operator"  #: sees and steers all jobs, queues and breakers
    ADMIN = "admin"  #: and keys, webhooks of all, owners and quotas


class Action(StrEnum):
    """What a route does; every route of every front door names exactly one."""

    ENQUEUE = "enqueue"
    SEE = "see"  #: jobs, with what belongs to them
    STEER = "steer"  #: retry, cancel, redrive, discard: jobs
    LOOK = "look"  #: at queues, lanes, breakers, workers, schedules, owners, operations
    OPERATE = "operate"  #: pause, force, run duties: what concerns everybody's jobs
    SUBSCRIBE = "subscribe"  #: webhooks
    ADMINISTER = "administer"  #: keys, quotas

    @property
    def allowed_to(self) -> frozenset[Role]:
        return _ALLOWED[self]


_EVERYBODY = frozenset(Role)
_STAFF = frozenset({Role.OPERATOR, Role.ADMIN})
_ALLOWED = {
    Action.ENQUEUE: _STAFF | {Role.OWNER},
    Action.SEE: _EVERYBODY,
    Action.STEER: _STAFF | {Role.OWNER},
    Action.LOOK: _STAFF | {Role.VIEWER},
    Action.OPERATE: _STAFF,
    Action.SUBSCRIBE: _STAFF | {Role.OWNER},
    Action.ADMINISTER: frozenset({Role.ADMIN}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKey:
    """A key as it is stored: its secret was shown once and is kept nowhere; *digest* is the SHA-256 of it."""

    id: str
    name: str  #: what people call it
    role: Role
    owner: str | None  #: whose jobs it reaches, for the role `owner`
    digest: bytes
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        """Both moments are exclusive: at *expires_at* it has expired."""
        return all(end is None or now < end for end in (self.expires_at, self.revoked_at))

    def reaches(self, owner: str | None) -> bool:
        """Whether it may see or steer what belongs to *owner* (None: to nobody)."""
        return self.role is not Role.OWNER or (owner is not None and owner == self.owner)
