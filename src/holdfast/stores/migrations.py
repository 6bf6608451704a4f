"""Migrations: which ones exist, which ones a database still needs, and which databases are refused.

Both stores follow these rules. The core is one component, each extension with tables another. Each component numbers its
migrations from 1. A database records which migrations of which component it has run, and the family of its schema. Migrations
lead from one schema to the next within a family. No migration leads from one family to another.

The tables that every store has alike are created by one text, in PostgreSQL's SQL, which is translated for SQLite.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple, NoReturn

from holdfast.engine.extensions import StoreExtensions
from holdfast.errors import SchemaMismatch

#: The family of schemas of this version. Family 1 was in use before the first release: its table of migrations has no
#: column `family`.
SCHEMA_FAMILY = 2

#: The component of the core, which is migrated first: an extension may use its tables.
CORE = "core"


class Migration(NamedTuple):
    """One step of the schema of a component."""

    component: str
    number: int
    topic: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.component}/{self.number:04}_{self.topic}"


@cache
def load_migrations(package: str, component: str, folder: str = "") -> tuple[Migration, ...]:
    """Read `migrations/<folder>/<number>_<topic>.sql` of *package*, in the order in which they run; nothing without the folder."""
    found, place = [], files(package) / "migrations" / folder
    for file in place.iterdir() if place.is_dir() else ():
        number, _, topic = file.name.removesuffix(".sql").partition("_")
        if file.name.endswith(".sql"):
            found.append(Migration(component, int(number), topic, file.read_text("utf-8")))
    return tuple(sorted(found))


@cache
def load_shared(package: str, component: str, dialect: str) -> tuple[Migration, ...]:
    """Read `migrations/<number>_<topic>.sql` of *package*: one text for both databases, in PostgreSQL's SQL."""
    found = load_migrations(package, component)
    if dialect == "postgres":
        return found
    return tuple(one._replace(text=for_sqlite(one.text)) for one in found)


def core_migrations(dialect: str) -> list[Migration]:
    """Return the migrations of the core, in the order in which they run."""
    of_database = load_migrations(f"holdfast.stores.{dialect}", CORE, CORE)
    return sorted((*of_database, *load_shared("holdfast.engine.tables", CORE, dialect)))


#: PostgreSQL's words and SQLite's. SQLite stores moments and durations as whole microseconds.
_WORDS = (
    (re.compile(r"\bbigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY\b"), "INTEGER PRIMARY KEY AUTOINCREMENT"),
    (re.compile(r"\b(?:bigint|int|smallint|boolean|timestamptz|interval)\b"), "INTEGER"),
    (re.compile(r"\b(?:text|jsonb|uuid)\b"), "TEXT"),
    (re.compile(r"\bbytea\b"), "BLOB"),
    (re.compile(r"\bfloat8\b"), "REAL"),
    (re.compile(r"'-infinity'"), "0"),
    (re.compile(r"\bINDEX (\w+) ON holdfast\."), r"INDEX holdfast_\1 ON holdfast_"),
    (re.compile(r"\bholdfast\."), "holdfast_"),
)
_COMMENT = re.compile(r"--.*")
_FILLFACTOR = re.compile(r" WITH \(fillfactor = \d+\)$")


def for_sqlite(text: str) -> str:
    """Translate statements that create tables and indexes from PostgreSQL's SQL. Comments are left out."""
    return ";\n".join(_translate(statement.strip()) for statement in _COMMENT.sub("", text).split(";"))


def _translate(statement: str) -> str:
    if statement.startswith("CREATE TABLE"):
        has_key = "PRIMARY KEY" in statement and "IDENTITY" not in statement
        statement = _FILLFACTOR.sub("", statement) + (" STRICT, WITHOUT ROWID" if has_key else " STRICT")
    for pattern, word in _WORDS:
        statement = pattern.sub(word, statement)
    return statement


def load_extensions(extensions: StoreExtensions, applied: Iterable[str]) -> None:
    """Load the extensions that own those of the *applied* components which *extensions* lack.

    Raises:
        SchemaMismatch: No installed extension owns one of them.
    """
    for component in sorted(set(applied) - {CORE} - extensions.packages.keys()):
        extensions.load(component)


def with_extensions(
    core: Sequence[Migration], extensions: StoreExtensions, dialect: str, applied: Iterable[str] = ()
) -> list[Migration]:
    """Return the migrations of the core and of the extensions, in the order in which they run.

    Args:
        core: The migrations of the core.
        extensions: The extensions of the app. Those that own another of the *applied* components are loaded first.
        dialect: The folder of their migrations: "sqlite" or "postgres".
        applied: The components that the database has.

    Raises:
        SchemaMismatch: The database has a component that no installed extension owns.
    """
    load_extensions(extensions, applied)
    return [
        *core,
        *(
            one
            for component, package in extensions.packages.items()
            for one in sorted(
                (*load_migrations(package, component, dialect), *load_shared(package, component, dialect))
            )
        ),
    ]


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
    """Raise `SchemaMismatch` if a newer version of the core or of an extension has migrated the database."""
    for component, newest in newest_numbers(migrations).items():
        if applied.get(component, 0) > newest:
            raise SchemaMismatch(
                f"{where} has {component} schema {applied[component]}, this version of {_owner(component)} knows up to"
                f" {newest}; upgrade {_owner(component)}"
            )


def refuse_older(migrations: Sequence[Migration], applied: Mapping[str, int], where: str) -> None:
    """Raise `SchemaMismatch` if the database has no schema, or needs a migration."""
    if not applied:
        raise SchemaMismatch(f"{where} has no Holdfast schema; run `holdfast migrate`")
    for component, newest in newest_numbers(migrations).items():
        if applied.get(component, 0) < newest:
            command = "holdfast migrate" if component == CORE else "holdfast migrate APP"
            raise SchemaMismatch(
                f"{where} has {component} schema {applied.get(component, 0)}, this version of {_owner(component)} needs"
                f" {newest}; run `{command}`"
            )


def _owner(component: str) -> str:
    return "Holdfast" if component == CORE else f"the extension {component}"


def refuse_family(family: int, where: str, instead: str) -> NoReturn:
    """Raise `SchemaMismatch` for a schema of another family. *instead* says what to use in place of the database."""
    if family > SCHEMA_FAMILY:
        raise SchemaMismatch(
            f"{where} has a schema of family {family}, this version of Holdfast knows family {SCHEMA_FAMILY}; upgrade Holdfast"
        )
    raise SchemaMismatch(
        f"{where} has the schema of an older Holdfast that cannot be migrated; drain it with that version, then {instead}"
    )
