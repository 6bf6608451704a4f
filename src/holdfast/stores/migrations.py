"""Migrations: which ones exist, which ones a database still needs, and which databases are refused.

Both stores follow these rules. Each component numbers its migrations from 1. A database records which migrations of which
component it has run, and the family of its schema. Migrations lead from one schema to the next within a family. No migration
leads from one family to another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple, NoReturn

from holdfast.errors import SchemaMismatch

#: The family of schemas of this version. Family 1 was in use before the first release: its table of migrations has no
#: column `family`.
SCHEMA_FAMILY = 2

#: The components, in the order in which they are migrated. A component may use the tables of those before it.
COMPONENTS = ("core", "credits")


class Migration(NamedTuple):
    """One step of the schema of a component."""

    component: str
    number: int
    topic: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.component}/{self.number:04}_{self.topic}"


def load_migrations(package: str) -> list[Migration]:
    """Read `migrations/<component>/<number>_<topic>.sql` of *package*, in the order in which they run."""
    return [
        migration for component in COMPONENTS for migration in sorted(_load_component(package, component))
    ]


def _load_component(package: str, component: str) -> Iterable[Migration]:
    for file in (files(package) / "migrations" / component).iterdir():
        number, _, topic = file.name.removesuffix(".sql").partition("_")
        if file.name.endswith(".sql"):
            yield Migration(component, int(number), topic, file.read_text("utf-8"))


def newest_numbers(migrations: Iterable[Migration]) -> dict[str, int]:
    """Return the newest number of each component."""
    newest: dict[str, int] = {}
    for component, number, _, _ in migrations:
        newest[component] = max(number, newest.get(component, 0))
    return newest


def missing(migrations: Sequence[Migration], applied: Mapping[str, int]) -> list[Migration]:
    """Return the migrations that a database still needs, whose newest numbers are *applied*."""
    return [one for one in migrations if one.number > applied.get(one.component, 0)]


def refuse_newer(migrations: Sequence[Migration], applied: Mapping[str, int], where: str) -> None:
    """Raise `SchemaMismatch` if a newer Holdfast has migrated the database.

    Components that this version does not have are ignored: they belong to extensions of other processes.
    """
    for component, newest in newest_numbers(migrations).items():
        if applied.get(component, 0) > newest:
            raise SchemaMismatch(
                f"{where} has {component} schema {applied[component]}, this version of Holdfast knows up to {newest};"
                " upgrade Holdfast"
            )


def refuse_older(migrations: Sequence[Migration], applied: Mapping[str, int], where: str) -> None:
    """Raise `SchemaMismatch` if the database has no schema, or needs a migration."""
    if not applied:
        raise SchemaMismatch(f"{where} has no Holdfast schema; run `holdfast migrate`")
    for component, newest in newest_numbers(migrations).items():
        if applied.get(component, 0) < newest:
            raise SchemaMismatch(
                f"{where} has {component} schema {applied.get(component, 0)}, this version of Holdfast needs {newest};"
                " run `holdfast migrate`"
            )


def refuse_family(family: int, where: str, instead: str) -> NoReturn:
    """Raise `SchemaMismatch` for a schema of another family. *instead* says what to use in place of the database."""
    if family > SCHEMA_FAMILY:
        raise SchemaMismatch(
            f"{where} has a schema of family {family}, this version of Holdfast knows family {SCHEMA_FAMILY}; upgrade Holdfast"
        )
    raise SchemaMismatch(
        f"{where} has the schema of an older Holdfast that cannot be migrated; drain it with that version, then {instead}"
    )
