"""Keep the policies in force up to date with their file and the overrides over it.

The file is read again whenever it has changed. The engine reads overrides from the store.

An invalid file stops an app from starting. In a running app it is only logged, and the current policies stay
in force.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.errors import UsageError
from holdfast.jobs.machine import Clock
from holdfast.logging import Log
from holdfast.tasks.options import Reader
from holdfast.tasks.policy_file.overrides import Override, lay_over
from holdfast.tasks.policy_file.reading import Document, read_document, read_policies
from holdfast.tasks.policy_file.values import DeclaredGuards, Policies, apply, policy_of
from holdfast.tasks.task import Policy, Task

DEFAULT_FILE = "holdfast.toml"
VARIABLE = "HOLDFAST_POLICIES"
#: How often a worker checks whether the file has changed, in seconds.
LOOK_EVERY = 2.0

log = Log("holdfast.policies")

Tasks = Mapping[str, Task[Any, Any]]


class InForce(NamedTuple):
    """Policies that are in force together."""

    policies: Policies
    tasks: Mapping[str, Policy]


def find(given: str | Path | None, environment: Mapping[str, str]) -> Path | None:
    """Return the policy file: *given*, else `HOLDFAST_POLICIES`, else ./holdfast.toml if it exists."""
    named = given or environment.get(VARIABLE)
    if named:
        return Path(named)
    usual = Path(DEFAULT_FILE)
    return usual if usual.is_file() else None


class Reloader:
    """Keeps `policies` and the policies of tasks up to date with the file at *path*, if there is one, and with overrides.

    *extension_options* are keys that extensions add to tasks and queues, each with its reader.
    """

    def __init__(self, path: Path | None, extension_options: Mapping[str, Reader] | None = None) -> None:
        self.path, self.extension_options = path, extension_options or {}
        self.policies = Policies()
        self.declared = DeclaredGuards()  #: what the code declares beside its tasks
        self.file = Document()  #: the policy file as it was read last
        self.overrides: tuple[Override, ...] = ()  #: over the file
        self.version = 0  #: of the newest change of an override that is in force here
        self.refused: Mapping[str, str] = {}  #: keys of overrides that do not fit here, and why
        self._error: UsageError | None = None
        self._stamp = _stamp(path)
        if path is not None:
            try:
                self.file = read_document(path)
                self.policies = read_policies(self.file, self.extension_options)
            except UsageError as error:
                # Raised when the app is opened. A child process that only imports the app to run a function
                # continues.
                self._error, self.file = error, Document()

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

    def read(self, tasks: Tasks, overrides: Sequence[Override]) -> InForce:
        """Return what would be in force with these *overrides* over the file as it was read last.

        Raises:
            UsageError: They are not valid, do not fit these *tasks*, or contradict each other.
        """
        return self._read(self.file, tasks, overrides)

    def fitting(self, tasks: Tasks, overrides: Sequence[Override]) -> tuple[InForce, dict[str, str]]:
        """Return what is in force with those of *overrides* that fit, and the keys of the others with the reason of each.

        Raises:
            UsageError: The file is not valid for these *tasks*.
        """
        return self._fitting(self.file, tasks, overrides)

    def reload(self, tasks: Tasks, *, asked: bool = False) -> bool:
        """Read the file again if it has changed, or if *asked*. Return whether new policies are in force."""
        if asked and self.path is None:
            log.info("policy_file.not_set", hint="this process was started without a policy file")
        stamp = _stamp(self.path)
        if self.path is None or (stamp == self._stamp and not asked):
            return False
        self._stamp = stamp
        try:
            file = read_document(self.path)
            found, refused = self._fitting(file, tasks, self.overrides)
        except UsageError as error:
            log.warning("policy_file.refused", reason=str(error), instead="the old policies stay in force")
            return False
        later = self._put_in_force(tasks, found, refused)
        self.file, self._error = file, None
        log.info("policy_file.reloaded", file=str(self.path))
        if later:
            log.warning(
                "policy_file.options_deferred",
                tasks=later,
                hint="a process keeps the options of extensions; restart it",
            )
        return True

    def override(self, tasks: Tasks, overrides: Sequence[Override], version: int) -> None:
        """Put these *overrides* in force, and no others. One that does not fit here is logged and left out."""
        try:
            found, refused = self.fitting(tasks, overrides)
        except UsageError:
            return  # the file is not valid: an app that is opened says so, and one that runs has a valid one
        self.overrides, self.version = tuple(overrides), version
        self._put_in_force(tasks, found, refused)
        log.info("policy_override.applied", version=version, overrides=len(overrides))

    async def run(self, tasks: Tasks, clock: Clock) -> None:
        """Reload the file whenever it has changed, until cancelled."""
        while True:
            await clock.sleep(LOOK_EVERY)
            self.reload(tasks)

    def _read(self, file: Document, tasks: Tasks, overrides: Sequence[Override]) -> InForce:
        for override in overrides:
            self._refuse_extension_option(override)
        policies = read_policies(lay_over(file, overrides), self.extension_options)
        return InForce(policies, apply(policies, _declared(tasks), self.declared) if tasks else {})

    def _fitting(
        self, file: Document, tasks: Tasks, overrides: Sequence[Override]
    ) -> tuple[InForce, dict[str, str]]:
        found = self._read(file, tasks, ())
        kept: list[Override] = []
        refused: dict[str, str] = {}
        pieces = [list(overrides)] if overrides else []
        while pieces:  # one that does not fit is found by halves: hundreds may fit
            piece = pieces.pop()
            try:
                found, kept = self._read(file, tasks, [*kept, *piece]), [*kept, *piece]
            except UsageError as error:
                if len(piece) == 1:
                    refused[piece[0].key] = str(error)
                else:
                    half = len(piece) // 2
                    pieces += [piece[half:], piece[:half]]
        return found, refused

    def _refuse_extension_option(self, override: Override) -> None:
        """Raise `UsageError` for an option of an extension, which a process reads when it starts; see `_kept`."""
        section, _, option, *_ = (*override.path, "")
        if section in ("tasks", "queues") and option in self.extension_options:
            raise UsageError(
                f"{override.key}: it is an option of an extension, which cannot be overridden; set it in the policy file"
            )

    def _put_in_force(self, tasks: Tasks, found: InForce, refused: Mapping[str, str]) -> list[str]:
        """Let tasks have their new policies. Return the names of those whose options of extensions stay as they are."""
        # Nothing here can fail or wait, so no reader sees a mix of old and new policies.
        later = []
        for name, policy in found.tasks.items():
            kept = _kept(policy, tasks[name].policy)
            if kept != policy:
                later.append(name)
            tasks[name].adopt(kept)
        self.policies = found.policies
        for key in refused.keys() - self.refused.keys():
            log.warning("policy_override.refused", key=key, reason=refused[key])
        self.refused = refused
        return later


def _kept(policy: Policy, current: Policy) -> Policy:
    """Return *policy* with the options of extensions that are in force.

    They change only at a restart: processes that only enqueue do not reload the file, and a job must cost the same in every
    process.
    """
    return replace(policy, extra=current.extra)


def _declared(tasks: Tasks) -> dict[str, Policy]:
    return {name: task.declared for name, task in tasks.items()}


def _stamp(path: Path | None) -> tuple[int, int, int] | None:
    """Return a value that changes when the file changes or is replaced, or None if there is no file."""
    try:
        stat = path.stat() if path is not None else None
    except OSError:
        return None
    return None if stat is None else (stat.st_mtime_ns, stat.st_size, stat.st_ino)
