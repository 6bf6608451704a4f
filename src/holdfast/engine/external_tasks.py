"""Hands jobs that others execute over to them, as messages in the outbox, which a relay brings to the broker.

The message is stored in the transaction of the move that makes its job wait: enqueue, a person's retry, a redrive, a lost
worker. The duty `external_tasks` tells of the others: those that come due later or were held (a pause of their queue, say), and those
that wait for so long that their message may be lost. A message of the same name is kept once, so each of these may be done
twice, by any number of processes.

A job that was requeued (`Requeue`) gets no message: the executor that requeued it still has one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from holdfast.domain.external_task import (
    ExternalTask,
    WaitingExternalTask,
    external_task_id,
    plain_json,
    repeat_id,
    repeats_due,
)
from holdfast.domain.job import JobId
from holdfast.domain.lanes import Cause, Scope
from holdfast.domain.moves import Kind
from holdfast.domain.outbox import DEADLINE, NewMessage
from holdfast.engine.payload import decode_any
from holdfast.engine.ports import Hook, MoveNotice, Store, Transaction
from holdfast.engine.tasks import Task
from holdfast.errors import StoreError
from holdfast.logs import Log

log = Log("holdfast.external_tasks")

KINDS = frozenset({Kind.queued, Kind.manual_retry, Kind.redriven, Kind.reclaimed, Kind.retry})
#: How often the duty looks for what has come due; what waits too long is looked for less often.
LOOK_EVERY = timedelta(seconds=2)
_SELDOM = timedelta(seconds=30)
_PAGE = 500
#: While this many messages of a topic wait for its broker, no message is repeated.
_ENOUGH = 10_000
#: How many names are remembered, so that they are not given to the store over and over.
_REMEMBERED = 50_000


class ExternalTaskStore(Protocol):
    """What external tasks ask of a store, inside one transaction. Each awaits its transaction alone."""

    async def now(self) -> datetime:
        """By the store's clock."""

    async def waiting(self, job_ids: Collection[JobId], tasks: Collection[str]) -> list[WaitingExternalTask]:
        """Those of these jobs that are of *tasks* and wait, as they are in this transaction."""

    async def promote_due(self, tasks: Collection[str], after: str, limit: int) -> list[WaitingExternalTask]:
        """Jobs in line of which their last move may not have told: they were due later, waited for their key, or were
        retried by somebody who does not know their task. By id, from behind *after*. One that was put back is among them
        only if no attempt of it counts: then its first message has been told, and its name is known."""

    async def unpublished(self, tasks: Collection[str], after: str, limit: int) -> list[WaitingExternalTask]:
        """Jobs in line whose first message the outbox does not have, whatever the reason: by id, from behind *after*."""

    async def overdue(
        self, tasks: Mapping[str, timedelta], after: str, limit: int
    ) -> list[WaitingExternalTask]:
        """Jobs in line that wait for longer than their task (name → how long) says: by id, from behind *after*."""

    async def known(self, message_ids: Collection[str]) -> set[str]:
        """Which of these the outbox has, waiting, parked or published."""

    async def publish(self, messages: Sequence[NewMessage]) -> None:
        """As `OutboxStore.publish`, in this transaction."""


class ExternalTasks:
    """Those of *tasks* that name a topic."""

    def __init__(
        self, tasks: Mapping[str, Task[Any, Any]], books: Callable[[Transaction], ExternalTaskStore]
    ) -> None:
        self._tasks, self._books = tasks, books
        self._told: set[str] = set()  #: by the duty of this process
        self._seldom_due: datetime | None = None
        self._holds: frozenset[tuple[Scope, Cause]] = frozenset()  #: in force at the last look
        self.hook: tuple[frozenset[Kind], Hook] = (KINDS, self._tell)

    def _handed(self) -> dict[str, timedelta]:
        return {
            name: task.policy.again_after
            for name, task in self._tasks.items()
            if task.policy.topic is not None
        }

    # -- with the move --------------------------------------------------------------------------------------------------
    async def _tell(self, transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        books, kinds = self._books(transaction), {moved.job_id: moved.kind for moved in moves}
        ids = list(kinds)
        for start in range(0, len(ids), _PAGE):
            found = await books.waiting(ids[start : start + _PAGE], self._handed())
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

    # -- the duty -------------------------------------------------------------------------------------------------------
    @property
    def every(self) -> float:
        """How often the duty looks, in seconds."""
        return min([LOOK_EVERY, *(again / 2 for again in self._handed().values())]).total_seconds()

    async def look(self, store: Store) -> int:
        """Tell of jobs that have come due, and again of those that wait for too long; of how many."""
        tasks = self._handed()
        now = await store.transact(lambda transaction: self._books(transaction).now(), reads=True)
        done = await self._walk(
            store, lambda books, after: books.promote_due(list(tasks), after, _PAGE), _first_name, now
        )
        # What was held has no message. A hold that has ended is a reason to look for it now.
        holds = frozenset((held.scope, held.cause) for held in await store.holds())
        before, self._holds = self._holds, holds
        if self._seldom_due is None or now >= self._seldom_due or before - holds:
            self._seldom_due = now + min([_SELDOM, *(again / 4 for again in tasks.values())])
            done += await self._walk(
                store, lambda books, after: books.unpublished(list(tasks), after, _PAGE), _first_name, now
            )
            crowded = {lag.topic for lag in await store.lags() if lag.waiting >= _ENOUGH}
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
                await store.publish(messages)
                self._told |= {message.id for message in messages}
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
        """The messages that this process has not stored yet. One that cannot be written does not keep the others, and a job
        whose deadline has passed needs none: the sweep ends it."""
        if len(self._told) > _REMEMBERED:
            self._told.clear()
        for one in page:
            if not one.due or (one.deadline is not None and one.deadline < now):
                continue
            if (name := name_of(one)) in self._told:
                continue
            try:
                yield self._message(one, name)
            except StoreError:
                raise
            except Exception as error:  # whatever the encoder of a task raises
                self._told.add(name)
                log.error(
                    "external_task.not_published",
                    job_id=one.id,
                    task=one.task,
                    reason=f"{type(error).__name__}: {error}"[:500],
                )


def _name(one: WaitingExternalTask) -> str:
    return external_task_id(one.id, one.generation)


def _first_name(one: WaitingExternalTask) -> str:
    """Of a job that came due: the first of its generation, or the first after it was lost with its worker."""
    return _name(one) if one.attempt == 0 else repeat_id(_name(one), one.since, 0)
