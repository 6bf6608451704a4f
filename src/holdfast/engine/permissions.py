"""Which tasks and queues callers may use over HTTP and by signed messages.

| task | keys of owners | keys of operators and admins |
|---|---|---|
| declared with `http=True` | enqueue, retry, redrive | the same |
| declared without | see and cancel their own jobs | enqueue, retry, redrive |
| the engine's own | nothing | retry and redrive as it is |

A task is closed unless it is declared open. Calls from Python and the command line are not checked here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Protocol

from holdfast.engine.admission import Admission
from holdfast.errors import Forbidden
from holdfast.jobs.internal import is_internal
from holdfast.tasks.settings import Settings
from holdfast.tasks.task import Task


class Declared(Protocol):
    """What permissions depend on; a runtime and an engine both have it."""

    @property
    def tasks(self) -> dict[str, Task[Any, Any]]: ...
    @property
    def admission(self) -> Admission: ...
    @property
    def settings(self) -> Settings: ...


def must_not_be_internal(task: str) -> None:
    """Raise `Forbidden` for a task of the engine itself, whether this process has it or not."""
    if is_internal(task):
        raise Forbidden(f"task {task[:100]} is one of the engine's own; it cannot be called from outside")


def must_be_open(declared: Declared, task: str) -> None:
    """Raise `Forbidden` for a task that keys of owners may not call."""
    must_not_be_internal(task)
    known = declared.tasks.get(task)
    if known is None or not known.policy.http:
        raise Forbidden(f"task {task[:100]} is not open to owners' keys; declare it with http=True")


def open_tasks(declared: Declared) -> list[str]:
    """Return the names of the tasks that keys of owners may call."""
    return sorted(name for name, task in declared.tasks.items() if task.policy.http and not is_internal(name))


def external_tasks(declared: Declared) -> list[str]:
    """Return the names of the tasks that callers other than the engine may call."""
    return sorted(name for name in declared.tasks if not is_internal(name))


def only_open(declared: Declared, asked: Collection[str] | None) -> list[str]:
    """Return the tasks of an owner's operation: those in *asked*, or all open ones. Raises `Forbidden` for a closed one."""
    for task in asked or ():
        must_be_open(declared, task)
    found = list(asked or open_tasks(declared))
    if not found:
        raise Forbidden("no task here is open to owners' keys; declare one with http=True")
    return found


def must_be_declared(declared: Declared, queue: str | None, shard: str | None = None) -> None:
    """Raise `Forbidden` for a queue that neither a task nor `holdfast.toml` declares, and for any shard.

    Each creates a lane of its own, so a caller who names many of them would slow down all others.
    """
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
