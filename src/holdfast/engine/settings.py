"""The settings of an app: by keyword, or by environment under the same name (`HOLDFAST_LEASE=30s`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any

from holdfast.domain.addresses import networks
from holdfast.domain.duration import duration
from holdfast.domain.suggest import suggest
from holdfast.domain.urls import scheme_of
from holdfast.errors import UsageError

#: Characters of the setting `secret`.
SHORTEST_SECRET = 24
DEFAULT_URL = "sqlite:///holdfast.db"
BROKERS = ("redis://", "rediss://", "amqp://", "amqps://", "memory://")
PLACES = ("file://", "s3://", "memory://")
_SWITCH = {"on": True, "off": False, "true": True, "false": False, "1": True, "0": False}
KEEP_LOGS = ("failed", "always", "never")
OWNER_QUEUES = ("declared", "any")
_MAY_BE_NONE = ("grace", "wait_for_store")
_NUMBERS = (
    "concurrency", "min_concurrency", "payload_limit", "result_limit", "outbox_batch", "stuck_batch", "child_jobs",
    "child_memory",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    lease: timedelta = timedelta(seconds=90)  #: how long a silent worker keeps its jobs
    heartbeat: timedelta | None = (
        None  #: how often a worker says that it lives; a third of the lease if not given
    )
    poll: timedelta = timedelta(
        seconds=1
    )  #: how often a waiting worker looks by itself, whatever the wake-ups say
    reclaim_every: timedelta = timedelta(seconds=2)  #: how often lost leases are looked for
    deadlines_every: timedelta | None = (
        None  #: how often passed deadlines are looked for; once a second, or as lost leases, if not given
    )
    promote_every: timedelta = timedelta(
        seconds=1
    )  #: how often jobs that came due are let into line at the latest; one known of is let in at its time
    stuck_every: timedelta | None = (
        None  #: how often stuck attempts are looked for; by the shortest `stuck_after` if not given
    )
    stuck_batch: int = 500  #: how many of them one look takes back
    concurrency: int = 10  #: how many jobs one worker process runs at once
    min_concurrency: int | None = None  #: with it, their number varies between this and *concurrency*
    grace: timedelta = timedelta(seconds=30)  #: how long a stopping worker lets its jobs finish
    #: how long a process that starts waits for a database that cannot be reached
    wait_for_store: timedelta = timedelta(minutes=1)
    payload_limit: int = 1_000_000  #: bytes of arguments
    result_limit: int = 1_000_000  #: bytes of a result in the database
    artifacts: str | None = None  #: where larger results go: a folder, file:///… or s3://bucket/prefix
    child_jobs: int | None = None  #: a child process is replaced after this many jobs
    child_memory: int | None = None  #: … or when it keeps more bytes of memory than this after one
    keep_logs: str = "failed"  #: which attempts keep what their handlers logged
    tracing: bool = False  #: a span for every attempt, linked to its caller's (OpenTelemetry)
    owner_queues: str = "declared"  #: which queues keys of owners may name
    metrics_prefix: str = "holdfast_"  #: what the names of all metrics begin with
    outbound_allow: str = ""  #: networks that webhooks may lead to although they are not public
    #: what the secrets of webhooks are made from; the same in every process of the app. `new,old` while it is replaced
    secret: str | None = field(default=None, repr=False)
    broker: str | None = field(default=None, repr=False)  #: where topics go that name no address of their own
    dispatch: str | None = field(default=None, repr=False)  #: the broker that hands out due jobs
    outbox_poll: timedelta = timedelta(seconds=5)  #: how often a relay looks by itself
    outbox_batch: int = 50  #: how many messages a relay takes at a time
    outbox_stale: timedelta = timedelta(seconds=60)  #: a message that waits this long is told of

    @property
    def beat_every(self) -> timedelta:
        return self.heartbeat or self.lease / 3

    @property
    def look_for_deadlines_every(self) -> timedelta:
        return self.deadlines_every or min(self.reclaim_every, timedelta(seconds=1))

    @classmethod
    def read(cls, given: Mapping[str, Any], environment: Mapping[str, str]) -> Settings:
        """Keywords win over the environment; what neither says keeps its default."""
        values: dict[str, Any] = {}
        known = {f.name for f in fields(cls)}
        if unknown := sorted(given.keys() - known):
            raise UsageError(f"no setting {', '.join(unknown)}; {suggest(unknown[0], known)}")
        for name in known:
            value = given.get(name)
            source = name
            if value is None:
                source = f"HOLDFAST_{name.upper()}"
                value = environment.get(source)
            if value is not None and (value != "" or name == "metrics_prefix"):
                values[name] = _read(source, name, value)
        settings = cls(**values)
        if settings.heartbeat is not None and settings.heartbeat > settings.lease / 3:
            raise UsageError(
                f"heartbeat ({settings.heartbeat}) must be at most a third of the lease ({settings.lease}),"
                " or two late beats would give a live worker's jobs away; shorten it, or leave it out"
            )
        least = settings.min_concurrency
        if least is not None and least > settings.concurrency:
            raise UsageError(
                f"min_concurrency is {least}, above concurrency ({settings.concurrency}); lower one, raise the other"
            )
        return settings


def _read(source: str, name: str, value: Any) -> Any:
    if name == "artifacts":
        place = str(value)
        if "://" in place and not place.startswith(PLACES):
            raise UsageError(
                f"{source}: {scheme_of(place)!r} is no place to keep artifacts; use a folder, file:///… or s3://…"
            )
        return place
    if name == "broker":
        return str(value)
    if name == "secret":
        if any(len(part.strip()) < SHORTEST_SECRET for part in str(value).split(",")):
            raise UsageError(
                f"{source} is too short; it has at least {SHORTEST_SECRET} characters, random ones"
            )
        return str(value)
    if name == "dispatch":
        if not str(value).startswith(BROKERS):
            raise UsageError(
                f"{source}: {scheme_of(str(value))!r} hands out no jobs; use redis://… or amqp://…"
            )
        return str(value)
    if name == "outbound_allow":
        try:
            networks(str(value))
        except UsageError as error:
            raise UsageError(f"{source}: {error}") from None
        return str(value)
    if name == "metrics_prefix":
        prefix = str(value)
        if prefix and not (prefix.isascii() and prefix.isidentifier()):
            raise UsageError(
                f"{source} is {prefix[:40]!r}; it may hold letters, digits and _, and begins with no digit"
            )
        return prefix
    if name == "tracing":
        said = _SWITCH.get(str(value).lower())
        if said is None:
            raise UsageError(f"{source} is {str(value)[:40]!r}; it is one of {', '.join(_SWITCH)}")
        return said
    if name == "keep_logs":
        if value not in KEEP_LOGS:
            raise UsageError(f"{source} is {value!r}; it is one of {', '.join(KEEP_LOGS)}")
        return value
    if name == "owner_queues":
        if value not in OWNER_QUEUES:
            raise UsageError(f"{source} is {str(value)[:40]!r}; it is one of {', '.join(OWNER_QUEUES)}")
        return value
    if name not in _NUMBERS:
        try:
            span = duration(value)
        except UsageError as error:
            raise UsageError(f"{source}: {error}") from None
        if not span and name not in _MAY_BE_NONE:
            raise UsageError(f"{source} is 0; it must be longer, e.g. 30s")
        return span
    try:
        number = int(value)
        whole = not isinstance(value, float) or value == number
    except (TypeError, ValueError, OverflowError):
        whole, number = False, 0
    if not whole:
        raise UsageError(f"{source} is {value!r}; it must be a whole number")
    if number < 1:
        raise UsageError(f"{source} is {number}; it must be at least 1")
    return number
