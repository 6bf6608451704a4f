"""What the extensions of an app add to its store: tables of their own, and work in the transaction of a purge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import NoReturn

from holdfast.engine.ports import Transaction
from holdfast.errors import SchemaMismatch
from holdfast.jobs.job import JobId

#: Runs in the transaction that deletes these jobs. If it raises, they are not deleted.
PurgeHook = Callable[[Transaction, Collection[JobId]], Awaitable[None]]


def refuse_component(component: str) -> NoReturn:
    """Raise `SchemaMismatch`: the database has tables of an extension that is not installed here."""
    raise SchemaMismatch(
        f"the database has tables of the extension {component}, which is not installed here: without it jobs would move"
        f" behind its back; install the package with the entry point {component} of the group holdfast.extensions"
    )


@dataclass(slots=True)
class StoreExtensions:
    """The parts of extensions that a store uses. One app has one, which all its stores share."""

    #: component → the package whose folder `migrations` has the migrations of that component
    packages: dict[str, str] = field(default_factory=dict)
    purged: list[PurgeHook] = field(default_factory=list)
    #: Add the extension that owns a component which the database has and `packages` lacks, or raise `SchemaMismatch`.
    load: Callable[[str], None] = refuse_component
