"""What relays, people and apps ask of a store about messages to other systems (E44). A store offers it as `store.outbox`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, runtime_checkable

from holdfast.outbox.model import Message, MessageState, NewMessage, Taken


class PutOff(NamedTuple):
    """A message that could not be delivered, and what to do with it."""

    taken: Taken
    wait: timedelta | None  #: how long it waits until the next try; None parks it
    error: str
    #: False if it was not tried, because the target was unreachable or an earlier message of its key failed: its tries stay
    tried: bool = True
    away: bool = False  #: the target could not be reached, which is counted apart


class Replayed(NamedTuple):
    """What one call of `OutboxStore.replay` did."""

    done: int  #: how many messages wait again
    next: int | None  #: the number at which to continue; None: the whole range is done


class OutboxStore(Protocol):
    """Messages at rest. A relay is a loop around four of these:

        while taken := await outbox.take(topics, BATCH, TAKEN_FOR): deliver, then
            await outbox.delivered(…), await outbox.put_off(…)
        ahead = await outbox.next_due(topics)
        await outbox.wait(topics, min(POLL_EVERY, ahead))

    Every operation may be sent again because its answer was lost: it has one effect, and the same answer if an epoch guards
    it. Messages of one key are ordered by number. Messages whose transactions were open at the same time are ordered only by
    when they become visible.
    """

    async def publish(self, messages: Sequence[NewMessage]) -> None:
        """Store *messages*, all or none, and return after the commit.

        A message whose id is known, whether it waits, is parked or is published, is not stored again.
        """

    async def take(self, topics: Mapping[str, bool], limit: int, span: timedelta) -> list[Taken]:
        """Take up to *limit* waiting messages of these topics that are due, and return them by number.

        A message is taken only together with all messages of its key that wait before it. A relay calls this until it returns
        nothing, because a delivered message makes the next one of its key ready. The cost does not depend on how many
        messages wait, nor on how many of them wait behind others of their key.

        Args:
            topics: Whether each topic is strict, by name. In a strict topic a parked message counts as waiting.
            limit: How many messages to take at most.
            span: How long the messages belong to the caller. Later others may take them.
        """

    async def delivered(self, taken: Collection[Taken]) -> int:
        """Mark messages as published, and return how many were marked.

        A message that another relay has taken since, which its *epoch* shows, does not change. A message is marked although
        its span is over or a person has parked it meanwhile, because it was delivered.
        """

    async def put_off(self, failed: Collection[PutOff]) -> int:
        """Let messages wait, or park them, and return how many changed.

        A message that another relay has taken since does not change, and one that a person has parked meanwhile stays parked.
        An empty *error* keeps that of the last try.
        """

    async def next_due(self, topics: Collection[str]) -> timedelta | None:
        """Return how long it is until a message may be taken; zero means now.

        Return None if no message waits, or each waits behind another one of its key.
        """

    async def wait(self, topics: Collection[str], timeout: float) -> None:
        """Return after *timeout* seconds, or earlier if a message of *topics* may be due.

        This wakes up after a publish by any process has committed, on a connection of a caller too, and after one between a
        `take` and this call. A message that comes due by itself does not always wake up: wait no longer than `next_due`. This
        is only a hint (rule 5 of docs/explanation/reliability.md).
        """

    async def messages(
        self,
        *,
        message_id: str | None = None,
        topic: str | None = None,
        state: MessageState | None = None,
        key: str | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Message]:
        """Return up to *limit* messages with numbers above *after*, by number. Each argument that is not None is a filter."""

    async def replay(self, topic: str, first: int, last: int, limit: int) -> Replayed:
        """Let up to *limit* published and parked messages of a topic wait again, by number from *first* to *last*.

        They keep their ids and numbers, and have no failed tries. To replay all of them continue at `Replayed.next`, not at
        *first*: the messages before it may have been published again meanwhile.
        """

    async def park(self, message_id: str, reason: str) -> bool:
        """Park a waiting message, and return whether it was waiting."""

    async def discard(self, message_ids: Collection[str], by: str, reason: str) -> int:
        """Delete those of these messages that are parked, and return how many were deleted.

        The next messages of their keys become ready. An event `discarded` of no job records for each message its id, by whom
        it was deleted, and why.
        """

    async def forget(self, keep: timedelta, limit: int) -> int:
        """Remove up to *limit* messages that were published longer ago than *keep*, and return how many were removed."""


@runtime_checkable
class PublishesDirectly(Protocol):
    """An outbox to which any thread can publish without an event loop."""

    def publish_sync(self, messages: Sequence[NewMessage]) -> None:
        """Do the same as `OutboxStore.publish`, blocking."""


@runtime_checkable
class PublishesInTransactions(Protocol):
    """An outbox that can store messages on a connection of the caller, inside the transaction of the caller."""

    async def publish_in(self, connection: Any, messages: Sequence[NewMessage]) -> None:
        """Store *messages* in the transaction that is open on an async *connection*."""

    def publish_in_sync(self, connection: Any, messages: Sequence[NewMessage]) -> None:
        """Do the same on a sync *connection*."""
