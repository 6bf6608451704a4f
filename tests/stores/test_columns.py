"""The table of columns that come from the spec of a job, and what it puts into the statements."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields

import asyncpg
import pytest

from holdfast.jobs.job import Claimed, JobSpec
from holdfast.stores.columns import CLAIMED, COLUMNS, placeholders
from holdfast.stores.postgres.enqueue_plan import SQL as POSTGRES
from holdfast.stores.sqlite.move import SQL as SQLITE
from tools import sql

#: Fields of `JobSpec` that are no column of this table: the lane has a table of its own, and the others are moments that
#: the statement computes from a parameter.
WITHOUT_COLUMN = {"lane", "delay", "run_at", "deadline_at"}
#: Columns with another name than the field.
RENAMED = {"priority": "prio", "deadline": "sla"}


def test_each_field_of_a_spec_has_a_column() -> None:  # E52
    expected = {RENAMED.get(field.name, field.name) for field in fields(JobSpec)} - WITHOUT_COLUMN
    assert {column.name for column in COLUMNS} == expected


def test_a_claim_returns_the_columns_in_the_order_of_its_fields() -> None:  # E52
    assert tuple(column.name for column in CLAIMED) == Claimed._fields[-len(CLAIMED) :]
    texts = placeholders(lambda column: f"<{column.type}>")
    assert texts["claimed columns"] == ", ".join(Claimed._fields[-len(CLAIMED) :])
    assert texts["spec columns"].startswith("prio, max_attempts, ")
    assert texts["spec values"].startswith("<smallint>, <smallint>, ")


@pytest.mark.parametrize("name", ["claim", "claim_job", "claim_jobs"])
async def test_a_claim_on_postgres_returns_what_the_reader_reads(name: str, postgres_url: str) -> None:  # E52
    connection = await asyncpg.connect(postgres_url)
    statement = await connection.prepare(POSTGRES[name])
    names = [attribute.name for attribute in statement.get_attributes()]
    await connection.close()
    more = ["ord"] if name == "claim" else []
    assert names == ["job_id", "epoch", "lane", "prio", *Claimed._fields[3:], *more]


@pytest.mark.parametrize("statements", [SQLITE, POSTGRES], ids=["sqlite", "postgres"])
def test_no_statement_has_a_placeholder_left(statements: Mapping[str, str]) -> None:  # E52
    for name, text in statements.items():
        code = "\n".join(line.partition("--")[0] for line in text.splitlines())
        assert not re.search(r"\{[$\w]", code), name


def test_the_tool_prints_a_statement_as_it_is_sent(capsys: pytest.CaptureFixture[str]) -> None:
    sql.main(["sqlite", "enqueue"])
    assert ":start_within, " in capsys.readouterr().out
    sql.main(["postgres"])
    assert "claim_jobs\n" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="Print statements"):
        sql.main(["sqlite", "nonsense"])
