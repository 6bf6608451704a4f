"""Messages to other systems, their states, and when a delivery is tried again (E44).

A message is *waiting* until its target has confirmed it; then it is *published*. After a failed delivery it waits, longer
each time. A message that no further try can help is *parked* with the reason, until a person decides. Messages with the same
key are delivered in the order in which they were stored. A parked message does not hold up those behind it, unless the topic is
*strict*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from holdfast.errors import UsageError
from holdfast.values.duration import Duration
from holdfast.values.validation import span, typed, whole

#: A relay takes this many messages at a time.
BATCH = 50
#: After this time another relay may take messages whose relay has not reported.
TAKEN_FOR = timedelta(seconds=30)
#: How long published messages are kept for a replay.
KEEP_PUBLISHED = timedelta(days=7)
#: The header with the time after which a message must not be delivered, in ISO 8601. Receivers can read it, too.
DEADLINE = "holdfast-deadline"
LARGEST_BODY = 1024 * 1024
LONGEST_NAME = 200
MOST_HEADERS, LONGEST_HEADER = 50, 2000


class MessageState(StrEnum):
    WAITING = "waiting"
    PUBLISHED = "published"
    PARKED = "parked"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to store. *headers* are text beside the body, such as a traceparent or a content type."""

    id: str
    topic: str
    key: str | None  #: messages with one key stay in order
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name("topic", self.topic)
        check_name("id", self.id)
        if self.key is not None:
            check_name("key", self.key)
        _check_headers(self.headers)
        if len(self.body) > LARGEST_BODY:
            raise UsageError(
                f"the message for {self.topic} has {len(self.body):,} bytes; {LARGEST_BODY:,} are allowed: "
                "store the content and send its address"
            )


def check_name(word: str, name: object) -> None:
    """Raise `UsageError` if not every store and target can hold *name*.

    Characters that are not printable are refused: people cannot see them, and some of them end a header early.
    """
    if not isinstance(name, str):
        raise UsageError(f"the {word} of a message is a text, not a {type(name).__name__}")
    if not 0 < len(name) <= LONGEST_NAME:
        raise UsageError(
            f"the {word} of a message has {len(name):,} characters; 1 to {LONGEST_NAME} are allowed"
        )
    if not name.isprintable():
        raise UsageError(f"the {word} {name[:40]!r} of a message holds what cannot be printed")


def _check_headers(headers: Mapping[str, str]) -> None:
    if len(headers) > MOST_HEADERS:
        raise UsageError(f"the message has {len(headers):,} headers; {MOST_HEADERS} are allowed")
    for name, value in headers.items():
        check_name("header", name)
        if not isinstance(value, str) or len(value) > LONGEST_HEADER or not value.isprintable():
            raise UsageError(
                f"the header {name} of a message is no printable text of at most {LONGEST_HEADER:,} characters"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message as it is stored."""

    number: int  #: the order in which they were stored
    id: str
    topic: str
    key: str | None
    body: bytes
    headers: Mapping[str, str]
    state: MessageState
    tries: int  #: failed deliveries
    unreached: int = 0  #: tries that did not reach the target; these do not park it
    error: str | None  #: of the last failed delivery, or why the message is parked
    created_at: datetime
    not_before: (
        datetime | None
    )  #: of a waiting message: the time of the next try, or when its relay counts as lost
    settled_at: datetime | None  #: when it was published or parked


class Taken(NamedTuple):
    """A message that a relay has taken. The *epoch* guards what the relay reports about it."""

    message: Message
    epoch: int


def deadline_of(headers: Mapping[str, str]) -> datetime | None:
    """Return the time after which a message must not be delivered, or None if its header is missing or unreadable."""
    text = headers.get(DEADLINE)
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


class Delivered(NamedTuple):
    """The target has confirmed the message."""


class Undelivered(NamedTuple):
    """The target has not confirmed the message."""

    error: str
    lasting: bool = False  #: no further try will help
    after: timedelta | None = None  #: the wait that the target asked for
    away: bool = False  #: the target could not be reached, so the message is not the cause


Delivery = Delivered | Undelivered


class Lag(NamedTuple):
    """The backlog of a topic. *oldest* is how long its oldest message has waited."""

    topic: str
    waiting: int
    parked: int
    oldest: timedelta | None


@dataclass(frozen=True, slots=True, init=False)
class TopicPolicy:
    """When the deliveries of a topic are tried again.

    The wait begins with *base* and doubles with each failed try up to *cap*. After *max_tries* a message is parked; None means
    never, because an unavailable broker is not the fault of a message. In a *strict* topic a parked message holds up its key.
    """

    base: timedelta
    cap: timedelta
    max_tries: int | None
    strict: bool

    def __init__(
        self,
        *,
        base: Duration = "1s",
        cap: Duration = "1m",
        max_tries: int | None = None,
        strict: bool = False,
    ) -> None:
        set_ = object.__setattr__
        set_(self, "base", span("base", base, timedelta(milliseconds=1), timedelta(hours=1)))
        set_(self, "cap", span("cap", cap, self.base, timedelta(days=1)))
        set_(self, "max_tries", None if max_tries is None else whole("max_tries", max_tries, 1, 10_000))
        set_(self, "strict", typed("strict", strict, bool, "True or False"))

    def after(self, tries: int, failed: Undelivered, chance: float) -> timedelta | None:
        """Return the wait of a message after *tries* failed tries, or None to park it. *chance*, from 0 to 1, is the jitter."""
        if failed.lasting or (self.max_tries is not None and tries >= self.max_tries):
            return None
        wait = min(self.cap, self.base * (1 << min(tries - 1, 30)))
        return max(wait * (0.5 + chance / 2), min(failed.after or timedelta(), self.cap))
