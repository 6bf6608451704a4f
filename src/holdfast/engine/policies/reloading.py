"""The policies in force, and the file they come from: read at the start, and again whenever it has changed.

A file that cannot be used stops an app from starting. Later it changes nothing: it is logged, and the policies that were in
force stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.engine.policies.reading import load
from holdfast.engine.policies.values import Policies, apply, policy_of
from holdfast.engine.ports import Clock
from holdfast.engine.tasks import Task
from holdfast.errors import UsageError
from holdfast.logs import Log

DEFAULT_FILE = "holdfast.toml"
VARIABLE = "HOLDFAST_POLICIES"
#: How often a worker looks whether the file has changed.
LOOK_EVERY = 2.0

log = Log("holdfast.policies")

Tasks = Mapping[str, Task[Any, Any]]


def find(given: str | Path | None, environment: Mapping[str, str]) -> Path | None:
    """The file to use: the one *given*, else that of `HOLDFAST_POLICIES`, else ./holdfast.toml if there is one."""
    named = given or environment.get(VARIABLE)
    if named:
        return Path(named)
    usual = Path(DEFAULT_FILE)
    return usual if usual.is_file() else None


class Reloader:
    """Keeps `policies` and the tasks' own in step with a file."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.policies = Policies()
        self._wrong: UsageError | None = None
        self._stamp = _stamp(path)
        if path is not None:
            try:
                self.policies = load(path)
            except UsageError as error:
                # Raised when the app is opened: a child process that only imports it, to run one function, goes on.
                self._wrong = error

    def adopt(self, task: Task[Any, Any]) -> None:
        """Lay the file's words over a task that has just been declared."""
        try:
            task.adopt(policy_of(self.policies, task.name, task.declared))
        except UsageError:
            pass  # `check` says it, when all tasks are known

    def check(self, tasks: Tasks) -> None:
        """Refuse to go on with a file that cannot be used for these *tasks*."""
        if self._wrong is not None:
            raise self._wrong
        if self.path is not None:
            apply(self.policies, _declared(tasks))

    def reload(self, tasks: Tasks, *, asked: bool = False) -> bool:
        """Read the file again if it has changed, or if *asked*; whether new policies are in force."""
        if asked and self.path is None:
            log.info("policy_file.not_set", hint="this process was started without a file of them")
        stamp = _stamp(self.path)
        if self.path is None or (stamp == self._stamp and not asked):
            return False
        self._stamp = stamp
        try:
            policies = load(self.path)
            wanted = apply(policies, _declared(tasks))
        except UsageError as error:
            log.warning("policy_file.refused", reason=str(error), instead="the old ones stay in force")
            return False
        # From here on nothing can fail or wait: nobody sees half of the old and half of the new.
        later = [name for name, policy in wanted.items() if policy.price != tasks[name].policy.price]
        for name, policy in wanted.items():
            # Those who only enqueue read no file again, and one job has one price, in whichever process it is enqueued.
            tasks[name].adopt(replace(policy, price=tasks[name].policy.price))
        self.policies, self._wrong = policies, None
        log.info("policy_file.reloaded", file=str(self.path))
        if later:
            log.warning(
                "policy_file.price_deferred", tasks=later, hint="a process keeps its prices; restart it"
            )
        return True

    async def run(self, tasks: Tasks, clock: Clock) -> None:
        """Look for a changed file, for ever."""
        while True:
            await clock.sleep(LOOK_EVERY)
            self.reload(tasks)


def _declared(tasks: Tasks) -> dict[str, Any]:
    return {name: task.declared for name, task in tasks.items()}


def _stamp(path: Path | None) -> tuple[int, int, int] | None:
    """Changes when the file does; also when another was moved into its place."""
    try:
        facts = path.stat() if path is not None else None
    except OSError:
        return None
    return None if facts is None else (facts.st_mtime_ns, facts.st_size, facts.st_ino)
