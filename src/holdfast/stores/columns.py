"""The columns of a job that come from its spec: one table, for the statements and the rows of every store.

`load_sql` fills these placeholders of the SQL files from the table, once:

- `{spec columns}` becomes the names of the columns, and `{spec values}` a parameter for each, in the same order.
- `{claimed columns}` becomes the names of those columns that a claim returns.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from holdfast.jobs.job import Claimed, JobSpec


class Column(NamedTuple):
    """A column of the table of jobs, and its value for all jobs of one spec."""

    name: str
    type: str  #: on PostgreSQL; SQLite encodes a value by it
    value: Callable[[JobSpec], Any]


#: For how many specs a store remembers the values. Most calls of a task share one spec, and hashing it is much faster.
SPECS = 256


def field_column(name: str, type_: str) -> Column:
    """Return the column that has the name and the value of a field of `JobSpec`."""
    return Column(name, type_, attrgetter(name))


COLUMNS = (
    Column("prio", "smallint", lambda spec: -spec.priority),  # an index reads the lowest first
    field_column("max_attempts", "smallint"),
    field_column("max_crashes", "smallint"),
    field_column("version", "smallint"),
    field_column("owner", "text"),
    field_column("key", "text"),
    Column("key_slots", "smallint", lambda spec: spec.key_slots if spec.key_slots > 1 else None),
    Column("tags", "text[]", lambda spec: list(spec.tags) or None),
    field_column("trace", "text"),
    field_column("timeout", "interval"),
    Column("sla", "interval", attrgetter("deadline")),
    field_column("start_within", "interval"),
    field_column("dedupe", "bytea"),
    field_column("dedupe_for", "interval"),
)

_BY_NAME = {column.name: column for column in COLUMNS}
#: The columns of those fields of `Claimed` that come from the spec, in the order of the fields.
CLAIMED = tuple(_BY_NAME[field] for field in Claimed._fields[Claimed._fields.index("waited") + 1 :])


def placeholders(parameter: Callable[[Column], str]) -> dict[str, str]:
    """Return the texts for the placeholders. *parameter* returns how a statement of this database names the value of a column."""
    return {
        "spec columns": ", ".join(column.name for column in COLUMNS),
        "spec values": ", ".join(parameter(column) for column in COLUMNS),
        "claimed columns": ", ".join(column.name for column in CLAIMED),
    }
