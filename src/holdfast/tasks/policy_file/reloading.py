"""Keep the policies in force up to date with their file, which is read again whenever it has changed.

An invalid file stops an app from starting. In a running app it is only logged, and the current policies stay
in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.errors import UsageError
from holdfast.jobs.machine import Clock
from holdfast.logging import Log
from holdfast.tasks.options import Reader
from holdfast.tasks.policy_file.reading import load
from holdfast.tasks.policy_file.values import Declared, Policies, apply, policy_of
from holdfast.tasks.task import Policy, Task

DEFAULT_FILE = "holdfast.toml"
VARIABLE = "HOLDFAST_POLICIES"
#: How often a worker checks whether the file has changed, in seconds.
LOOK_EVERY = 2.0

log = Log("holdfast.policies")

Tasks = Mapping[str, Task[Any, Any]]


def find(given: str | Path | None, environment: Mapping[str, str]) -> Path | None:
    """Return the policy file: *given*, else `HOLDFAST_POLICIES`, else ./holdfast.toml if it exists."""
    named = given or environment.get(VARIABLE)
    if named:
        return Path(named)
    usual = Path(DEFAULT_FILE)
    return usual if usual.is_file() else None


class Reloader:
    """Keeps `policies` and the policies of tasks up to date with the file at *path*, if there is one.

    *extension_options* are keys that extensions add to tasks and queues, each with its reader.
    """

    def __init__(self, path: Path | None, extension_options: Mapping[str, Reader] | None = None) -> None:
        self.path, self._extension_options = path, extension_options or {}
        self.policies = Policies()
        self.declared = Declared()  #: what the code declares beside its tasks
        self._error: UsageError | None = None
        self._stamp = _stamp(path)
        if path is not None:
            try:
                self.policies = load(path, self._extension_options)
            except UsageError as error:
                # Raised when the app is opened. A child process that only imports the app to run a function
                # continues.
                self._error = error

    def adopt(self, task: Task[Any, Any]) -> None:
        """Apply the file to a task that has just been declared."""
        try:
            task.adopt(policy_of(self.policies, task.name, task.declared))
        except UsageError:
            pass  # `check` raises it when all tasks are known

    def check(self, tasks: Tasks) -> None:
        """Raise `UsageError` if the file is not valid for these *tasks*."""
        if self._error is not None:
            raise self._error
        if self.path is not None:
            apply(self.policies, _declared(tasks), self.declared)

    def reload(self, tasks: Tasks, *, asked: bool = False) -> bool:
        """Read the file again if it has changed, or if *asked*. Return whether new policies are in force."""
        if asked and self.path is None:
            log.info("policy_file.not_set", hint="this process was started without a policy file")
        stamp = _stamp(self.path)
        if self.path is None or (stamp == self._stamp and not asked):
            return False
        self._stamp = stamp
        try:
            policies = load(self.path, self._extension_options)
            new_policies = apply(policies, _declared(tasks), self.declared)
        except UsageError as error:
            log.warning("policy_file.refused", reason=str(error), instead="the old policies stay in force")
            return False
        # Nothing from here on can fail or wait, so no reader sees a mix of old and new policies.
        later = [name for name, policy in new_policies.items() if _kept(policy, tasks[name].policy) != policy]
        for name, policy in new_policies.items():
            tasks[name].adopt(_kept(policy, tasks[name].policy))
        self.policies, self._error = policies, None
        log.info("policy_file.reloaded", file=str(self.path))
        if later:
            log.warning(
                "policy_file.options_deferred",
                tasks=later,
                hint="a process keeps the options of extensions; restart it",
            )
        return True

    async def run(self, tasks: Tasks, clock: Clock) -> None:
        """Reload the file whenever it has changed, until cancelled."""
        while True:
            await clock.sleep(LOOK_EVERY)
            self.reload(tasks)


def _kept(policy: Policy, current: Policy) -> Policy:
    """Return *policy* with the options of extensions that are in force.

    They change only at a restart: processes that only enqueue do not reload the file, and a job must cost the same in every
    process.
    """
    return replace(policy, extra=current.extra)


def _declared(tasks: Tasks) -> dict[str, Any]:
    return {name: task.declared for name, task in tasks.items()}


def _stamp(path: Path | None) -> tuple[int, int, int] | None:
    """Return a value that changes when the file changes or is replaced, or None if there is no file."""
    try:
        stat = path.stat() if path is not None else None
    except OSError:
        return None
    return None if stat is None else (stat.st_mtime_ns, stat.st_size, stat.st_ino)
