"""What the engine asks of a store about messages for others (E44). Part of the port `Store`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, runtime_checkable

from holdfast.domain.outbox import Lag, Message, MessageState, NewMessage, Taken


class PutOff(NamedTuple):
    """It could not be delivered: try again after *wait*; None: it is parked. Not *tried*: the target was away, or the
    message stood behind one of its key that failed. It is given back for *wait*, and its tries stay as they are. *away*:
    the target could not be reached, which is counted apart."""

    taken: Taken
    wait: timedelta | None
    error: str
    tried: bool = True
    away: bool = False


class Replayed(NamedTuple):
    """How many wait again, and where to go on: *next* is the first number of the range that was not looked at yet; None: the
    whole range was."""

    done: int
    next: int | None


class OutboxStore(Protocol):
    """Messages at rest. A relay is a loop around four of these:

        while taken := await store.take_messages(topics, BATCH, TAKEN_FOR): deliver, then
            await store.messages_delivered(…), await store.put_off_messages(…)
        ahead = await store.next_message(topics)
        await store.wait_for_messages(topics, min(POLL_EVERY, ahead))

    Every operation may be sent again because its answer was lost: one effect, and the same answer where it is guarded by an
    epoch. Order is by number, within one key. Those that were stored by transactions that were open at the same time have no
    order between them but the one in which they can be seen.
    """

    async def publish(self, messages: Sequence[NewMessage]) -> None:
        """Keep them until they are delivered, all or none; answered after the commit. One whose id is known already, waiting,
        parked or published, is not kept twice."""

    async def take_messages(self, topics: Mapping[str, bool], limit: int, span: timedelta) -> list[Taken]:
        """Up to *limit* waiting messages of *topics* (name → strict) that are due, by number, ours for *span*.

        Of one key only those are taken before which nothing waits that is not taken with them, in this call. In a strict
        topic a parked message counts as waiting. A relay asks again until nothing comes: what is delivered lets others of its
        key into line. Costs the same however many wait, and however many of them wait behind others of their key.
        """

    async def messages_delivered(self, taken: Collection[Taken]) -> int:
        """They are published; how many. One that was taken by another since (its *epoch* has passed) is left alone. One whose
        span ran out and that nobody took is published all the same, and so is one that a person has parked meanwhile: it
        has left."""

    async def put_off_messages(self, failed: Collection[PutOff]) -> int:
        """They wait, or are parked, guarded in the same way; how many. One that a person has parked meanwhile stays parked.
        An empty *error* leaves the one of the last try."""

    async def next_message(self, topics: Collection[str]) -> timedelta | None:
        """How long until one that waits may be taken (zero: now); None: none waits, or only behind others of its key."""

    async def wait_for_messages(self, topics: Collection[str], timeout: float) -> None:
        """Return early when one of *topics* may be due: it was published, here or elsewhere, also on a connection of somebody's
        own, once that is committed. A hint only: the take is the truth (rule 5 of docs/explanation/reliability.md). What is rung between a take and this call is
        not missed. One that is due later by itself (`next_message`) does not ring everywhere: wait no longer than that."""

    async def messages(
        self,
        *,
        topic: str | None = None,
        state: MessageState | None = None,
        key: str | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Message]:
        """By number, from the one behind *after* on."""

    async def message(self, message_id: str) -> Message | None: ...

    async def replay_messages(self, topic: str, first: int, last: int, limit: int) -> Replayed:
        """Let published and parked ones of these numbers (*last* included) wait again, under their ids and numbers, with no
        failed tries: up to *limit*, by number. To replay all, go on at `Replayed.next`, not at *first*: those before
        it may have been published again meanwhile."""

    async def park_message(self, message_id: str, reason: str) -> bool:
        """A person takes it out of line; False when it does not wait."""

    async def discard_messages(self, message_ids: Collection[str], by: str, reason: str) -> int:
        """Give up those of these that are parked; how many. Each is gone and lets up those behind it; an event `discarded` of no
        job says which it was, whose decision that was, and why."""

    async def lags(self) -> list[Lag]:
        """Of every topic in which anything waits or is parked, by name."""

    async def forget_messages(self, keep: timedelta, limit: int) -> int:
        """Remove messages that were published *keep* ago; how many."""


@runtime_checkable
class PublishesDirectly(Protocol):
    """A store that can publish from any thread without an event loop."""

    def publish_sync(self, messages: Sequence[NewMessage]) -> None: ...


@runtime_checkable
class PublishesInTransactions(Protocol):
    """A store that can keep messages on a connection of the caller's, inside the caller's own transaction."""

    async def publish_in(self, connection: Any, messages: Sequence[NewMessage]) -> None: ...

    def publish_in_sync(self, connection: Any, messages: Sequence[NewMessage]) -> None: ...
