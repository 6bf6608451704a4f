"""What may be done from outside, by HTTP or by a signed message, with which tasks and queues.

| task | keys of owners | keys of operators and admins |
|---|---|---|
| declared with `http=True` | enqueue, retry, redrive | the same |
| declared without | see and cancel their own jobs | enqueue, retry, redrive |
| the engine's own | nothing | retry and redrive as it is |

A task that nothing is said of is closed. Python and the command line do not ask here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Protocol

from holdfast.domain.internal import is_internal
from holdfast.engine.admission import Admission
from holdfast.engine.settings import Settings
from holdfast.engine.tasks import Task
from holdfast.errors import Forbidden


class Declared(Protocol):
    """What an app declares, as an app or an engine has it."""

    @property
    def tasks(self) -> dict[str, Task[Any, Any]]: ...
    @property
    def admission(self) -> Admission: ...
    @property
    def settings(self) -> Settings: ...


def must_not_be_internal(task: str) -> None:
    """`Forbidden` for a task of the engine's own, whether this process has it or not."""
    if is_internal(task):
        raise Forbidden(f"task {task[:100]} is one of the engine's own; it cannot be called from outside")


def must_be_open(declared: Declared, task: str) -> None:
    """`Forbidden` for a task that keys of owners may not call."""
    must_not_be_internal(task)
    known = declared.tasks.get(task)
    if known is None or not known.policy.http:
        raise Forbidden(f"task {task[:100]} is not open to owners' keys; declare it with http=True")


def open_tasks(declared: Declared) -> list[str]:
    """The names of the tasks that keys of owners may call."""
    return sorted(name for name, task in declared.tasks.items() if task.policy.http and not is_internal(name))


def external_tasks(declared: Declared) -> list[str]:
    """The names of all tasks that may be called from outside."""
    return sorted(name for name in declared.tasks if not is_internal(name))


def only_open(declared: Declared, asked: Collection[str] | None) -> list[str]:
    """The tasks that an owner's operation is about: those it asks for, each of which must be open, or all that are."""
    for task in asked or ():
        must_be_open(declared, task)
    found = list(asked or open_tasks(declared))
    if not found:
        raise Forbidden("no task here is open to owners' keys; declare one with http=True")
    return found


def must_be_declared(declared: Declared, queue: str | None, shard: str | None = None) -> None:
    """`Forbidden` for a queue that neither a task nor `holdfast.toml` declares, and for a shard: each makes a lane of its own,
    and who names many of them makes work for everybody."""
    if declared.settings.owner_queues == "any":
        return
    if queue is not None and queue not in _queues(declared):
        raise Forbidden(
            f"no task and no [queues] section declares the queue {queue[:100]!r}; leave it out, declare it,"
            " or set owner_queues to any"
        )
    if shard is not None:
        raise Forbidden("owners' keys do not name shards; leave it out, or set owner_queues to any")


def _queues(declared: Declared) -> set[str]:
    return {*_of_tasks(declared.tasks.values()), *declared.admission.declared_queues}


def _of_tasks(tasks: Iterable[Task[Any, Any]]) -> Iterable[str]:
    return (task.lane.queue for task in tasks if not is_internal(task.name))
