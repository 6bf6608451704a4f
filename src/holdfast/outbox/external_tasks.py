"""Publish external jobs to their executors, as messages in the outbox that a relay delivers.

The message is stored in the transaction of the move that makes its job wait: an enqueue, a person's retry, a redrive, a lost
worker. The maintenance task `external_tasks` publishes the others: jobs that come due later or were held, by a pause of their
queue for example, and jobs that have waited so long that their message may be lost. The outbox keeps one message of a name, so
any number of processes may do this at once.

A job that was requeued (`Requeue`) gets no message: the executor that requeued it still has one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from holdfast.engine.ports import Hook, MoveNotice, Store, Transaction
from holdfast.engine.tables.holds import holds_in_force
from holdfast.errors import StoreError
from holdfast.jobs.external_task import (
    ExternalTask,
    WaitingExternalTask,
    external_task_id,
    plain_json,
    repeat_id,
    repeats_due,
)
from holdfast.jobs.job import JobId
from holdfast.jobs.lanes import Cause, Scope
from holdfast.jobs.moves import Kind
from holdfast.logging import Log
from holdfast.outbox.lags import read_lags
from holdfast.outbox.model import DEADLINE, NewMessage
from holdfast.tasks.payload import decode_any
from holdfast.tasks.task import Task

log = Log("holdfast.external_tasks")

KINDS = frozenset({Kind.queued, Kind.manual_retry, Kind.redriven, Kind.reclaimed, Kind.retry})
#: How often jobs that have come due are looked for, and jobs that have waited too long.
LOOK_EVERY = timedelta(seconds=2)
_LOOK_FOR_LOST_EVERY = timedelta(seconds=30)
_PAGE = 500
#: While this many messages of a topic wait for its broker, no message is repeated.
_ENOUGH = 10_000
#: How many names of messages are remembered, so that they are not sent to the store again and again.
_REMEMBERED = 50_000


class ExternalTaskStore(Protocol):
    """What external tasks need of a store, inside one transaction. Each method awaits only that transaction."""

    async def now(self) -> datetime:
        """Return the time of the store's clock."""

    async def waiting(self, job_ids: Collection[JobId], tasks: Collection[str]) -> list[WaitingExternalTask]:
        """Return those of these jobs that wait and belong to *tasks*, as they are in this transaction."""

    async def newly_due(self, tasks: Collection[str], after: str, limit: int) -> list[WaitingExternalTask]:
        """Return queued jobs whose last move may not have published them, by id, from behind *after*.

        They were due later, waited for their key, or were retried by a process that does not know their task. A job that was
        put back is among them only if none of its attempts counts: then its first message exists, and its name is known.
        """

    async def unpublished(self, tasks: Collection[str], after: str, limit: int) -> list[WaitingExternalTask]:
        """Return queued jobs whose first message is not in the outbox, by id, from behind *after*."""

    async def overdue(
        self, tasks: Mapping[str, timedelta], after: str, limit: int
    ) -> list[WaitingExternalTask]:
        """Return jobs that have been queued longer than *tasks* (name → time) allows, by id, from behind *after*."""

    async def known(self, message_ids: Collection[str]) -> set[str]:
        """Return which of these messages are in the outbox: waiting, parked or published."""

    async def publish(self, messages: Sequence[NewMessage]) -> None:
        """Store messages, as `OutboxStore.publish` does, in this transaction."""


class ExternalTasks:
    """Those of *tasks* that name a topic."""

    def __init__(
        self, tasks: Mapping[str, Task[Any, Any]], books: Callable[[Transaction], ExternalTaskStore]
    ) -> None:
        self._tasks, self._books = tasks, books
        self._published: set[str] = set()  #: by maintenance in this process
        self._lost_due: datetime | None = None
        self._holds: frozenset[tuple[Scope, Cause]] = frozenset()  #: in force at the last look
        self.hook: tuple[frozenset[Kind], Hook] = (KINDS, self._publish_moved)

    def _repeat_after(self) -> dict[str, timedelta]:
        return {
            name: task.policy.again_after
            for name, task in self._tasks.items()
            if task.policy.topic is not None
        }

    # -- with the move --------------------------------------------------------------------------------------------------
    async def _publish_moved(self, transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        books, kinds = self._books(transaction), {moved.job_id: moved.kind for moved in moves}
        ids = list(kinds)
        for start in range(0, len(ids), _PAGE):
            found = await books.waiting(ids[start : start + _PAGE], self._repeat_after())
            due = [one for one in found if one.due]
            before = [_name(one) for one in due if kinds[one.id] is not Kind.queued]
            known = await books.known(before) if before else set()
            messages = [
                self._message(one, repeat_id(_name(one), one.since, 0) if _name(one) in known else _name(one))
                for one in due
            ]
            if messages:
                await books.publish(messages)

    def _message(self, one: WaitingExternalTask, name: str) -> NewMessage:
        task = self._tasks[one.task]
        assert task.policy.topic is not None
        arguments = task.upgrade(decode_any(one.payload), one.version)
        external_task = ExternalTask(_name(one), one.id, one.generation, one.task, arguments, one.deadline)
        body, headers = (task.policy.encode or plain_json)(external_task)
        added = {} if one.trace is None else {"traceparent": one.trace}
        if one.deadline is not None:
            added[DEADLINE] = one.deadline.isoformat()
        return NewMessage(
            id=name, topic=task.policy.topic, key=one.id, body=body, headers=added | dict(headers)
        )

    # -- maintenance -------------------------------------------------------------------------------------------------------
    @property
    def every(self) -> float:
        """The seconds between two calls of `look` by maintenance."""
        return min([LOOK_EVERY, *(again / 2 for again in self._repeat_after().values())]).total_seconds()

    async def look(self, store: Store) -> int:
        """Publish jobs that have come due, and again those that have waited too long. Return how many."""
        tasks = self._repeat_after()
        now = await store.transact(lambda transaction: self._books(transaction).now(), reads=True)
        done = await self._walk(
            store, lambda books, after: books.newly_due(list(tasks), after, _PAGE), _first_name, now
        )
        # Jobs that were held have no message. When a hold ends they are looked for at once.
        holds = frozenset((held.scope, held.cause) for held in await holds_in_force(store))
        before, self._holds = self._holds, holds
        if self._lost_due is None or now >= self._lost_due or before - holds:
            self._lost_due = now + min([_LOOK_FOR_LOST_EVERY, *(again / 4 for again in tasks.values())])
            done += await self._walk(
                store, lambda books, after: books.unpublished(list(tasks), after, _PAGE), _first_name, now
            )
            crowded = {lag.topic for lag in await read_lags(store) if lag.waiting >= _ENOUGH}
            late = {name: span for name, span in tasks.items() if self._topic(name) not in crowded}

            def name_of(one: WaitingExternalTask) -> str:
                times = max(1, repeats_due(one.since, now, late[one.task]))
                return repeat_id(_name(one), one.since, times)

            done += await self._walk(
                store, lambda books, after: books.overdue(late, after, _PAGE), name_of, now
            )
        return done

    def _topic(self, task: str) -> str | None:
        return self._tasks[task].policy.topic

    async def _walk(
        self,
        store: Store,
        page_of: Callable[[ExternalTaskStore, str], Any],
        name_of: Callable[[WaitingExternalTask], str],
        now: datetime,
    ) -> int:
        done, after = 0, ""
        while True:
            page: list[WaitingExternalTask] = await store.transact(
                lambda transaction, after=after: page_of(self._books(transaction), after),  # type: ignore[misc]
                reads=True,
            )
            messages = list(self._new(page, name_of, now))
            if messages:
                await store.outbox.publish(messages)
                self._published |= {message.id for message in messages}
                done += len(messages)
            if len(page) < _PAGE:
                return done
            after = page[-1].id

    def _new(
        self,
        page: Iterable[WaitingExternalTask],
        name_of: Callable[[WaitingExternalTask], str],
        now: datetime,
    ) -> Iterable[NewMessage]:
        """Yield the messages that this process has not stored yet.

        A message that cannot be encoded does not hold up the others. A job whose deadline has passed needs none.
        """
        if len(self._published) > _REMEMBERED:
            self._published.clear()
        for one in page:
            if not one.due or (one.deadline is not None and one.deadline < now):
                continue
            if (name := name_of(one)) in self._published:
                continue
            try:
                yield self._message(one, name)
            except StoreError:
                raise
            except Exception as error:  # raised by the encoder of a task
                self._published.add(name)
                log.error(
                    "external_task.not_published",
                    job_id=one.id,
                    task=one.task,
                    reason=f"{type(error).__name__}: {error}"[:500],
                )


def _name(one: WaitingExternalTask) -> str:
    return external_task_id(one.id, one.generation)


def _first_name(one: WaitingExternalTask) -> str:
    """Return the name of the message of a job that came due, or of one that was lost with its worker."""
    return _name(one) if one.attempt == 0 else repeat_id(_name(one), one.since, 0)
