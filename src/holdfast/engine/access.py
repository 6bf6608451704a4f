"""Keys of the HTTP API, their roles, and what each role may do. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Role(StrEnum):
    """The role of a key. `Action.allowed_to` says what each role may do."""

    VIEWER = "viewer"  #: sees everything, changes nothing
    OWNER = "owner"  #: enqueues, sees and changes the jobs of one owner
    OPERATOR = "operator"  #: sees and changes all jobs, queues and breakers
    ADMIN = "admin"  #: as an operator, and also keys, all webhooks, owners and quotas


class Action(StrEnum):
    """What a route does. Every route names exactly one action."""

    ENQUEUE = "enqueue"
    SEE = "see"  #: read jobs and what belongs to them
    STEER = "steer"  #: retry, cancel, redrive or discard jobs
    LOOK = "look"  #: read queues, lanes, breakers, policies, workers, schedules, owners and operations
    OPERATE = "operate"  #: pause, force breakers, override policies and run maintenance, for all jobs
    SUBSCRIBE = "subscribe"  #: create and change webhooks
    ADMINISTER = "administer"  #: create and revoke keys, set quotas

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
    """A key as it is stored. Its secret was shown once and is not stored; *digest* is the SHA-256 of it."""

    id: str
    name: str  #: for people to recognize it by
    role: Role
    owner: str | None  #: whose jobs it reaches, for the role `owner`
    digest: bytes
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        """Return whether the key is valid at *now*. At *expires_at* itself it has expired."""
        return all(end is None or now < end for end in (self.expires_at, self.revoked_at))

    def reaches(self, owner: str | None) -> bool:
        """Return whether the key may see or change what belongs to *owner*; None is a job without an owner."""
        return self.role is not Role.OWNER or (owner is not None and owner == self.owner)
