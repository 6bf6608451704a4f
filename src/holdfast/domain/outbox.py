"""Messages for others: what is told, to which topic, and what becomes of one that cannot be delivered (E44).

A message is *waiting* until its target has confirmed it, then it is *published*. One that cannot be delivered is put off,
each time for longer; one that no further try can help is *parked*, with the reason, until a person decides. Messages with
one key leave in the order in which they were stored. A parked message does not hold up those behind it, unless the topic
is *strict*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from holdfast.domain.duration import Duration
from holdfast.domain.validation import span, typed, whole
from holdfast.errors import UsageError

#: A relay takes this many messages at a time.
BATCH = 50
#: A relay that took messages and was heard of no more: another may have them after this.
TAKEN_FOR = timedelta(seconds=30)
#: How long messages that were published are kept, for replay.
KEEP_PUBLISHED = timedelta(days=7)
#: The header that says until when a message may be delivered, in ISO 8601; for a receiver, too.
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
    """What somebody wants told. *headers* are plain words beside the body: a traceparent, a content type of one's own."""

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
    """Whether every store can keep it and every target can be told of it. What is not printable would be seen by nobody, and
    some of it ends a header or a name early."""
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
    """A message as the store has it."""

    number: int  #: the order in which they were stored
    id: str
    topic: str
    key: str | None
    body: bytes
    headers: Mapping[str, str]
    state: MessageState
    tries: int  #: that failed
    unreached: int = 0  #: tries that did not reach the target; these do not park it
    error: str | None  #: of the last one, or why it is parked
    created_at: datetime
    not_before: datetime | None  #: while waiting: when it is tried next, or its relay is given up
    settled_at: datetime | None  #: published or parked


class Taken(NamedTuple):
    """A message that a relay has in hand. The *epoch* guards what it says about it afterwards."""

    message: Message
    epoch: int


def deadline_of(headers: Mapping[str, str]) -> datetime | None:
    """Until when a message may be delivered, as its header says; None without one, or with one that cannot be read."""
    text = headers.get(DEADLINE)
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


class Delivered(NamedTuple):
    """The target has confirmed it."""


class Undelivered(NamedTuple):
    """It was not confirmed. *lasting*: no further try will help. *after*: what the target asked for. *away*: nobody was
    there to try it with, which is no fault of the message."""

    error: str
    lasting: bool = False
    after: timedelta | None = None
    away: bool = False


Delivery = Delivered | Undelivered


class Lag(NamedTuple):
    """How one topic stands. *oldest* is how long the message that has waited longest has waited."""

    topic: str
    waiting: int
    parked: int
    oldest: timedelta | None


@dataclass(frozen=True, slots=True, init=False)
class TopicPolicy:
    """How a topic is delivered: *base* doubled after each failed try, up to *cap*, and *max_tries* before it is parked
    (None: never, for a broker that is away is no fault of the message). *strict*: a parked message holds up its key."""

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
        """How long a message waits that failed *tries* times now; None: it is parked. *chance*, 0 to 1, spreads them."""
        if failed.lasting or (self.max_tries is not None and tries >= self.max_tries):
            return None
        wait = min(self.cap, self.base * (1 << min(tries - 1, 30)))
        return max(wait * (0.5 + chance / 2), min(failed.after or timedelta(), self.cap))
