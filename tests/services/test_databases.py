"""Whatever a test leaves in the emptied database, the next one finds it as it was when it was new."""

from typing import Any

import psycopg
import pytest

from tests.services.databases import MANY, emptied_database
from tests.services.postgres import Postgres

TRACES = {
    "rows": "INSERT INTO holdfast.bookmark (name, event) VALUES ('there', 1)",
    "many rows": f"INSERT INTO holdfast.bookmark (name, event) SELECT n, n FROM generate_series(0, {MANY}) n",
    "a number that was drawn": "SELECT nextval('holdfast.epoch')",
    "a table of its own": "CREATE TABLE note (text text)",
    "a column more": "ALTER TABLE holdfast.job ADD COLUMN more int",
    "a right": "GRANT SELECT ON holdfast.job TO public",
    "a table less": "DROP TABLE holdfast.bookmark",
    "an older schema": "DELETE FROM holdfast.migration WHERE component = 'core' AND number > 5",
    "a setting": "ALTER DATABASE holdfast_emptied SET jit = on",
}


@pytest.mark.parametrize("trace", TRACES.values(), ids=TRACES)
def test_nothing_is_left_of_what_a_test_did(postgres: Postgres, trace: str) -> None:
    with emptied_database(postgres) as url:
        new = look(url)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(trace)
        assert look(url) != new
    with emptied_database(postgres) as url:
        assert look(url) == new


def test_a_test_that_fails_leaves_nothing_behind_either(postgres: Postgres) -> None:
    with emptied_database(postgres) as url:
        new = look(url)
    with pytest.raises(psycopg.errors.UniqueViolation):
        _fail(postgres)
    with emptied_database(postgres) as url:
        assert look(url) == new


def _fail(postgres: Postgres) -> None:
    with emptied_database(postgres) as url, psycopg.connect(url, autocommit=True) as connection:
        for _ in range(2):
            connection.execute(TRACES["rows"])


def test_a_session_that_was_left_open_holds_nobody_up(postgres: Postgres) -> None:
    with emptied_database(postgres) as url:
        left = psycopg.connect(url)
        left.execute(TRACES["rows"])
    with pytest.raises(psycopg.OperationalError):
        left.commit()
    left.close()
    with emptied_database(postgres) as url, psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM holdfast.bookmark").fetchone() == (0,)


def look(url: str) -> list[Any]:
    """What can be different, as a new session sees it."""
    asked = (
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema !~ '^(pg|info)' ORDER BY 1, 2",
        "SELECT relacl FROM pg_class WHERE oid = 'holdfast.job'::regclass",
        "SELECT component, max(number) FROM holdfast.migration GROUP BY component",
        "SELECT last_value, is_called FROM holdfast.epoch",
        "SHOW jit",
    )
    with psycopg.connect(url) as connection:
        found: list[Any] = [connection.execute(question).fetchall() for question in asked]
        there = connection.execute("SELECT to_regclass('holdfast.bookmark')").fetchone() != (None,)
        return [*found, there and connection.execute("SELECT count(*) FROM holdfast.bookmark").fetchone()]
