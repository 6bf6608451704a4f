"""The settings of an app, given as keywords or as environment variables (`HOLDFAST_LEASE=30s`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypedDict

from holdfast.errors import UsageError
from holdfast.values.addresses import networks
from holdfast.values.duration import Duration, duration
from holdfast.values.suggest import suggest
from holdfast.values.urls import scheme_of

#: The least number of characters of the setting `secret`.
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


class SettingsOptions(TypedDict, total=False):
    """The settings of an app as keywords; `Settings` says what each is and its default."""

    lease: Duration
    heartbeat: Duration | None
    poll: Duration
    reclaim_every: Duration
    deadlines_every: Duration | None
    promote_every: Duration
    stuck_every: Duration | None
    stuck_batch: int
    concurrency: int
    min_concurrency: int | None
    grace: Duration
    wait_for_store: Duration
    payload_limit: int
    result_limit: int
    artifacts: str | Path | None
    child_jobs: int | None
    child_memory: int | None
    keep_logs: Literal["failed", "always", "never"]
    tracing: bool
    owner_queues: Literal["declared", "any"]
    metrics_prefix: str
    environment: str
    frame_ancestors: str
    outbound_allow: str
    secret: str | None
    broker: str | None
    dispatch: str | None
    outbox_poll: Duration
    outbox_batch: int
    outbox_stale: Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of an app, with their defaults."""

    lease: timedelta = timedelta(seconds=90)  #: how long a silent worker keeps its jobs
    #: how often a worker sends its heartbeat; by default a third of the lease
    heartbeat: timedelta | None = None
    #: how often an idle worker checks for jobs, even without a wake-up
    poll: timedelta = timedelta(seconds=1)
    reclaim_every: timedelta = timedelta(seconds=2)  #: how often to check for lost leases
    #: how often to check for passed deadlines; by default once a second, or as often as for lost leases
    deadlines_every: timedelta | None = None
    #: how often to promote due jobs at least; those that a process knows of are promoted on time
    promote_every: timedelta = timedelta(seconds=1)
    #: how often to check for stuck attempts; by default according to the shortest `stuck_after`
    stuck_every: timedelta | None = None
    stuck_batch: int = 500  #: how many stuck attempts one check reclaims
    concurrency: int = 10  #: how many jobs one worker process runs at once
    min_concurrency: int | None = None  #: if set, the number of jobs adapts between this and *concurrency*
    grace: timedelta = timedelta(seconds=30)  #: how long a stopping worker lets its jobs finish
    #: how long a starting process waits for a database that it cannot reach
    wait_for_store: timedelta = timedelta(minutes=1)
    payload_limit: int = 1_000_000  #: the most bytes of a job's arguments
    result_limit: int = 1_000_000  #: the most bytes of a result in the database
    #: where larger results are stored: a folder, file:///… or s3://bucket/prefix
    artifacts: str | None = None
    child_jobs: int | None = None  #: a child process is replaced after this many jobs
    child_memory: int | None = None  #: … or when it uses more bytes of memory than this after a job
    keep_logs: str = "failed"  #: the attempts whose log lines are stored
    tracing: bool = False  #: create a span for every attempt, linked to its caller's (OpenTelemetry)
    owner_queues: str = "declared"  #: the queues that keys of owners may name
    metrics_prefix: str = "holdfast_"  #: the prefix of all metric names
    environment: str = ""  #: shown by the dashboard, such as "production"
    frame_ancestors: str = "'none'"  #: the sites that may show the dashboard in a frame
    outbound_allow: str = ""  #: networks that webhooks may call although they are not public
    #: the key from which webhook secrets are derived and sessions are signed, the same in every process;
    #: `new,old` while it is replaced
    secret: str | None = field(default=None, repr=False)
    #: the address for topics without an address of their own
    broker: str | None = field(default=None, repr=False)
    #: the address of the broker that dispatches due jobs
    dispatch: str | None = field(default=None, repr=False)
    outbox_poll: timedelta = timedelta(seconds=5)  #: how often an idle relay checks for messages
    outbox_batch: int = 50  #: how many messages a relay takes at a time
    outbox_stale: timedelta = timedelta(seconds=60)  #: a message that waits longer than this is logged

    @property
    def beat_every(self) -> timedelta:
        """The interval of heartbeats."""
        return self.heartbeat or self.lease / 3

    @property
    def look_for_deadlines_every(self) -> timedelta:
        """The interval of checks for passed deadlines."""
        return self.deadlines_every or min(self.reclaim_every, timedelta(seconds=1))

    @classmethod
    def read(cls, given: Mapping[str, Any], environment: Mapping[str, str]) -> Settings:
        """Return the settings from keywords and the environment. Keywords win over the environment.

        Raises:
            UsageError: A setting is unknown or not valid.
        """
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
                f"{source}: artifacts cannot be stored in {scheme_of(place)!r}; use a folder, file:///… or s3://…"
            )
        return place
    if name == "broker":
        return str(value)
    if name == "secret":
        if any(len(part.strip()) < SHORTEST_SECRET for part in str(value).split(",")):
            raise UsageError(f"{source} is too short; use at least {SHORTEST_SECRET} random characters")
        return str(value)
    if name == "dispatch":
        if not str(value).startswith(BROKERS):
            raise UsageError(
                f"{source}: {scheme_of(str(value))!r} cannot dispatch jobs; use redis://… or amqp://…"
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
                f"{source} is {prefix[:40]!r}; it may hold letters, digits and _, and must not begin with a digit"
            )
        return prefix
    if name in ("environment", "frame_ancestors"):
        text = str(value)
        if len(text) > 500 or not text.isprintable() or not text.isascii() or set(text) & {";", ","}:
            raise UsageError(f"{source} is {text[:40]!r}; use printable ASCII without ; and ,")
        return text
    if name == "tracing":
        switch = _SWITCH.get(str(value).lower())
        if switch is None:
            raise UsageError(f"{source} is {str(value)[:40]!r}; it is one of {', '.join(_SWITCH)}")
        return switch
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
