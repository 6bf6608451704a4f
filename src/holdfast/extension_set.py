"""The extensions of one app: those that it declares, and those that its database has."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.engine.extensions import StoreExtensions, refuse_component
from holdfast.engine.ports import Hook, Transaction
from holdfast.engine.tables.sql import Transacts
from holdfast.errors import StoreError, UsageError
from holdfast.extensions import Extension, Host
from holdfast.health.judgement import Check, Level
from holdfast.jobs.job import JobId
from holdfast.jobs.moves import Kind
from holdfast.logging import Log
from holdfast.maintenance.tasks import MaintenanceTask
from holdfast.tasks.task import Task

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = Log("holdfast.extensions")

T = TypeVar("T")

#: Installed packages name their extensions by entry points of this group.
GROUP = "holdfast.extensions"


def installed_extensions() -> dict[str, EntryPoint]:
    """Return the extensions of all installed packages by name. None of them is loaded."""
    from importlib.metadata import entry_points  # slow to import, and few processes need it

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def installed_task_options() -> dict[str, Callable[[str, Any], Any]]:
    """Return the task options of all installed extensions, for a policy file that is read without its app."""
    found: dict[str, Callable[[str, Any], Any]] = {}
    for entry in installed_extensions().values():
        found |= entry.load().task_options
    return found


class ExtensionSet:
    """Adds extensions to an app, and collects what they offer.

    Args:
        extensions: Those that the app declares.
        hooks: The hooks of the app. The hooks of extensions are called before those that the app adds.
    """

    def __init__(self, extensions: Sequence[Extension], hooks: list[tuple[frozenset[Kind], Hook]]) -> None:
        self.by_name: dict[str, Extension] = {}
        self.task_options: dict[str, Callable[[str, Any], Any]] = {}
        self.store = StoreExtensions(load=self._load)
        self._hooks = hooks
        self._host: Host | None = None
        self._loading = threading.Lock()
        for extension in extensions:
            self._add(extension)

    def attach(self, app: Host) -> None:
        """Give *app* to every extension."""
        # Stores know the hooks of extensions, and the finalizer of an app knows its stores: it must not know the app.
        host = self._host = weakref.proxy(app)
        for extension in self.by_name.values():
            extension.attach(host)

    def _add(self, extension: Extension) -> None:
        if not isinstance(extension, Extension):
            raise UsageError(f"{extension!r:.60} is no extension; write extensions=[Credits()] with objects")
        name = getattr(extension, "name", None)
        if not isinstance(name, str) or not name.isidentifier() or name != name.lower() or name == "core":
            raise UsageError(
                f"{type(extension).__name__} has the name {name!r:.60}; write a word in small letters, e.g. name = 'colors'"
            )
        if name in self.by_name:
            raise UsageError(f"there is an extension named {name!r} already; list each once")
        for option in extension.task_options:
            if option in self.task_options:
                raise UsageError(f"two extensions have the task option {option!r}; use one of them")
        self.by_name[name] = extension
        self.task_options |= extension.task_options
        if extension.migrations is not None:
            self.store.packages[name] = extension.migrations
        if extension.kinds:
            place = len([hook for _, hook in self._hooks if isinstance(_owner(hook), Extension)])
            self._hooks.insert(place, (extension.kinds, extension.moved))
        if type(extension).purged is not Extension.purged:  # a hook makes a purge a transaction
            self.store.purged.append(extension.purged)

    def _load(self, component: str) -> None:
        """Add the extension that owns *component*, which the database has and the app does not declare.

        Without it a retry from the command line would move jobs behind its back. Raises `SchemaMismatch` if it is not installed.
        """
        with self._loading:  # another event loop may open the store meanwhile
            if component in self.by_name:
                return
            entry = installed_extensions().get(component)
            if entry is None:
                refuse_component(component)
            try:
                extension = entry.load()()
            except Exception as error:
                raise UsageError(
                    f"the extension {component} of {entry.value} cannot be loaded: {error!r}"
                ) from error
            self._add(extension)
            assert self._host is not None  # a store is made by an app
            extension.attach(_Undeclared(self._host))
            log.info("extension.loaded", extension=component, hint="the database has its tables")

    # -- what extensions offer --------------------------------------------------------------------------------------
    async def opened(self, store: Transacts) -> None:
        """Let every extension prepare in the running event loop."""
        for extension in list(self.by_name.values()):
            await extension.opened(store)

    def maintenance(self) -> list[MaintenanceTask]:
        """Return the maintenance tasks of all extensions."""
        return [task for extension in self.by_name.values() for task in extension.maintenance()]

    async def measures(self) -> dict[str, float]:
        """Return the measures of all extensions, each name preceded by that of its extension.

        An extension that raises is logged and left out: it must not hide the measures of the jobs.
        """
        found = {}
        for name, extension in list(self.by_name.items()):
            try:
                for measure, value in (await extension.measures()).items():
                    if not measure.isidentifier():
                        raise UsageError(f"the measure {measure!r:.60} is no word")
                    found[f"{name}_{measure}"] = float(value)
            except StoreError:
                raise
            except Exception:
                log.exception("extension.failed", extension=name)
        return found

    async def health(self) -> list[Check]:
        """Return the checks of all extensions.

        One that raises is logged and becomes a failing check: it must not hide the checks of the jobs.
        """
        checks: list[Check] = []
        for name, extension in list(self.by_name.items()):
            try:
                checks += await extension.health()
            except StoreError:
                raise
            except Exception as error:
                log.exception("extension.failed", extension=name)
                text = f"the checks of the extension {name} raised {type(error).__name__}; see the log"
                checks.append(Check(name, Level.FAIL, None, None, text))
        return checks


def _owner(hook: Hook) -> object:
    return getattr(hook, "__self__", None)


class _Undeclared:
    """An app that does not declare the extension, as the extension sees it: without tasks."""

    def __init__(self, app: Host) -> None:
        self._app = app
        self.tasks: Mapping[str, Task[Any, Any]] = {}

    def new_id(self) -> JobId:
        return self._app.new_id()

    async def transact(
        self, work: Callable[[Transaction], Awaitable[T]], *, reads: bool = False, atomic: bool = True
    ) -> T:
        return await self._app.transact(work, reads=reads, atomic=atomic)

    def run_sync(self, work: Coroutine[Any, Any, T], /) -> T:
        return self._app.run_sync(work)
