"""Write an extension: tables, task options and work in the transactions of jobs, in a package of its own.

    class Loyalty(Extension):
        name = "loyalty"
        migrations = "shop.loyalty"
        kinds = frozenset({Kind.complete})

        async def moved(self, transaction, moves):
            for job in await transaction.jobs([moved.job_id for moved in moves]):
                await sql.fetch(transaction, "INSERT INTO holdfast.loyalty_point …", job.owner)

    loyalty = Loyalty()
    app = Holdfast(extensions=[loyalty])

docs/how-to/write-an-extension.md explains the methods. `sql` is one dialect of SQL for every store, and `validation` has the checks
that options use.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

from holdfast.engine.ports import JobFacts, MoveNotice, Transaction
from holdfast.engine.tables import sql
from holdfast.engine.tables.sql import Transacts
from holdfast.errors import Refused, UsageError
from holdfast.health.judgement import Check, Level
from holdfast.jobs.job import JobId
from holdfast.jobs.moves import Kind
from holdfast.maintenance.tasks import MaintenanceTask
from holdfast.tasks.task import Task
from holdfast.values import validation
from holdfast.values.duration import Duration, duration

if TYPE_CHECKING:  # the framework is imported by the server, never by `import holdfast`
    from starlette.routing import BaseRoute

__all__ = [
    "Check",
    "Duration",
    "Extension",
    "Host",
    "JobFacts",
    "JobId",
    "Kind",
    "Level",
    "MaintenanceTask",
    "MoveNotice",
    "Refused",
    "Transaction",
    "Transacts",
    "duration",
    "sql",
    "validation",
]

T = TypeVar("T")


class Host(Protocol):
    """The app that an extension belongs to, as far as the extension uses it."""

    @property
    def tasks(self) -> Mapping[str, Task[Any, Any]]:
        """The tasks of the app, by name.

        It is empty for an extension that was loaded because the database has its tables: an app that does not declare the
        extension says nothing about its options.
        """

    def new_id(self) -> JobId:
        """Return a new id: unguessable, and growing with time."""

    async def transact(
        self, work: Callable[[Transaction], Awaitable[T]], *, reads: bool = False, atomic: bool = True
    ) -> T:
        """Do *work* in a transaction of the app's store, and return its answer after the commit.

        *work* may await only its transaction, and may be done again if its answer was lost. *reads*: it only reads.
        *atomic* False: it is a single statement.
        """

    def run_sync(self, work: Coroutine[Any, Any, T], /) -> T:
        """Run *work* from code without an event loop, and return its answer."""


class HasExtensions(Protocol):
    """An app, as far as its extensions are found in it."""

    @property
    def extensions(self) -> Mapping[str, Extension]: ...


class Extension:
    """What one package adds to an app. Subclass it, and override what you need: every method has a default that does nothing.

    Make one object for each app, and pass it as `Holdfast(extensions=[…])`.
    """

    #: A word in small letters. It is the component of the migrations; tables are named `holdfast.<name>_…`.
    name: ClassVar[str]
    #: The package with the folder `migrations`; None: the extension has no tables.
    migrations: ClassVar[str | None] = None
    #: The moves that `moved` is called with.
    kinds: ClassVar[frozenset[Kind]] = frozenset()
    #: What pages may ask for, at `GET /api/v1/extensions`.
    capabilities: ClassVar[frozenset[str]] = frozenset()
    #: Options of tasks: `@app.task(extra={"price": 2})`, or `price = 2` in a section of holdfast.toml. Each has a function of
    #: the option's name and the value, which returns the value to use or raises `UsageError`.
    task_options: ClassVar[Mapping[str, Callable[[str, Any], Any]]] = {}

    app: Host

    @classmethod
    def of(cls, app: HasExtensions) -> Self:
        """Return the extension of this class that *app* has: `Credits.of(app)`. Raises `UsageError` if it has none."""
        found = app.extensions.get(cls.name)
        if not isinstance(found, cls):
            raise UsageError(
                f"this app and its database have no {cls.name}; declare it: Holdfast(extensions=[{cls.__name__}()])"
            )
        return found

    def attach(self, app: Host) -> None:
        """Keep *app*, the app that this extension belongs to. It is called once, before the app has tasks."""
        if hasattr(self, "app"):
            raise UsageError(
                f"this {type(self).__name__}() belongs to another app already; make one for each app"
            )
        self.app = app

    async def opened(self, store: Transacts) -> None:
        """Prepare. It is called in each event loop that opens the store, before anything else uses the store there."""

    async def moved(self, transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        """Do what belongs to *moves*, in their transaction. If this raises, none of them happens.

        The transaction may be the caller's own (`task.options(connection=…)`). Await only the transaction. To refuse, raise
        `Refused`.
        """

    async def purged(self, transaction: Transaction, job_ids: Collection[JobId]) -> None:
        """Delete what belongs to jobs that retention deletes, in the same transaction. If this raises, they are kept."""

    def maintenance(self) -> Sequence[MaintenanceTask]:
        """Return the work to do again and again: name, seconds, async function. Any number of processes may do it at once."""
        return ()

    async def measures(self) -> Mapping[str, float]:
        """Return numbers about now. `/metrics` shows each as the gauge `holdfast_<extension>_<name>`."""
        return {}

    async def health(self) -> Sequence[Check]:
        """Return checks to join to those of `app.health()` and `holdfast doctor`."""
        return ()

    def routes(self) -> Sequence[BaseRoute]:
        """Return routes of the HTTP API: `routes.routes` of a `holdfast.server.routing.router`.

        Write them in a module of their own, and import it here: only the server needs it.
        """
        return ()
