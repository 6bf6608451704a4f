"""The SQL of both dialects, side by side: the same verb has the same file name."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from holdfast.stores.postgres.enqueue_plan import SQL as POSTGRES
from holdfast.stores.sqlite.move import SQL as SQLITE

#: Files that one dialect has alone, and why.
ONLY_SQLITE = {
    "behind": "see `head`",
    "bury": "the wide row is updated; on PostgreSQL `end` moves the job to the table `done` for all three ends",
    "cancel": "likewise: PostgreSQL cancels through `end`",
    "claimed": "SQLite reads back what it claimed in a second statement; PostgreSQL returns it from `claim`",
    "dead_letter": "PostgreSQL writes the dead letter inside `end`",
    "due": "when somebody is due is looked up before anything is written; PostgreSQL's `promote` answers it",
    "end_attempt": "PostgreSQL writes the attempt inside `end`, `requeue` and `complete`",
    "entered": "the passes of a fair line are worked out in Python; PostgreSQL does it in `stage`",
    "flow": "likewise",
    "head": "the first jobs of a line; PostgreSQL looks at the lines inside `claim`",
    "holding": "what is held; PostgreSQL looks at it inside `claim`",
    "unplaced": "see `entered`",
}
ONLY_POSTGRES = {
    "claim_jobs": "taken from `ready` or `deferred`; SQLite picks them by a short query and claims them as any others",
    "end": "see SQLite's bury, cancel and dead_letter",
    "enqueue_again": "the way for ids that may be known, delays and keys; SQLite's `enqueue` does both",
    "enqueue_lanes": "`enqueue` into many lanes at once; on SQLite a statement is not a round trip",
    "fair_lines": "see `stage`: which lines it looks at",
    "grant": "who may go next of each key; SQLite looks at the keys while it picks",
    "heads": "whose job is next in each line; SQLite sees that while it picks",
    "outbox_mark": "passes by dead rows that a snapshot keeps; SQLite keeps none in its tables",
    "reject": "one INSERT into three tables; on SQLite it is the INSERT of one job, with other columns",
    "report": "writes and returns the states in one statement, because a worker sends one a second; SQLite needs two",
    "stage": "who came new into a fair line is placed by one statement; SQLite places with every enqueue and claim",
}


def files(statements: Mapping[str, str]) -> set[str]:
    """Return the names of the files: `requeue` for the statements `requeue.fail` and `requeue.release`."""
    return {name.partition(".")[0] for name in statements}


def test_a_verb_has_the_same_file_in_both_dialects_or_a_reason() -> None:  # E52
    sqlite, postgres = files(SQLITE), files(POSTGRES)
    assert sqlite - postgres == ONLY_SQLITE.keys()
    assert postgres - sqlite == ONLY_POSTGRES.keys()


def test_the_verbs_of_every_day_are_in_both() -> None:  # E52
    assert {"enqueue", "claim", "extend", "complete", "requeue", "retry", "promote", "expired"} <= (
        files(SQLITE) & files(POSTGRES)
    )


@pytest.mark.parametrize(
    ("dialect", "name"),
    [("sqlite", name) for name in SQLITE] + [("postgres", name) for name in POSTGRES],
)
def test_a_file_is_one_statement(dialect: str, name: str) -> None:  # E52
    text = {"sqlite": SQLITE, "postgres": POSTGRES}[dialect][name]
    code = "\n".join(line.partition("--")[0] for line in text.splitlines()).strip()
    assert code
    assert ";" not in code.removesuffix(";")
