"""The statements that move jobs: their WHERE has the states that `MOVES` allows, and no copy of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.jobs.moves import MOVES, State
from holdfast.stores import sql_files
from holdfast.stores.postgres import state_tables
from holdfast.stores.sql_files import load_sql
from holdfast.stores.sqlite import phases

STORES = Path(sql_files.__file__).parent
GUARDS = {"sqlite": phases.in_states, "postgres": state_tables.in_states}
#: What takes a job out of its state: on SQLite a new phase, on PostgreSQL the deletion from the table of the state.
LEAVES = {
    "sqlite": re.compile(r"UPDATE (holdfast_job)\b(?:[^;]*?)\bSET\s+phase = "),
    "postgres": re.compile(r"DELETE FROM holdfast\.(ready|deferred|lease|done)\b"),
}
#: These statements make no move: the job stays queued, or it is deleted.
NO_MOVE = {"sqlite": {"promote"}, "postgres": {"promote", "grant", "purge_jobs"}}
#: Moves that start from no state, or that change no job.
NO_START = {"enqueue", "reject", "extend"}


def statements(dialect: str, moves: sql_files.Moves = MOVES) -> dict[str, str]:
    return load_sql(f"holdfast.stores.{dialect}", GUARDS[dialect], moves)


@pytest.mark.parametrize("dialect", GUARDS)
@pytest.mark.parametrize("verb", sorted(MOVES.keys() - NO_START))
def test_another_table_of_moves_makes_other_statements(dialect: str, verb: str) -> None:  # E2 E52
    as_they_are = statements(dialect)
    without = statements(dialect, {**MOVES, verb: (frozenset(), MOVES[verb][1])})
    changed = {name for name in as_they_are if as_they_are[name] != without[name]}
    assert changed
    assert all("." not in name or name.endswith(f".{verb}") for name in changed)


@pytest.mark.parametrize("dialect", GUARDS)
def test_every_statement_that_moves_a_job_asks_the_table_of_moves(dialect: str) -> None:  # E2 E52
    found = set()
    for file in (STORES / dialect / "sql").glob("*.sql"):
        text = file.read_text("utf-8")
        for table in LEAVES[dialect].findall(text):
            found.add(file.stem)
            place = r"[\w.]*phase" if dialect == "sqlite" else rf"(?:\w+\.)?{table}"
            assert file.stem in NO_MOVE[dialect] or re.search(rf"\{{{place} may\b", text), file.stem
    assert found > NO_MOVE[dialect]


@pytest.mark.parametrize("dialect", GUARDS)
def test_no_module_moves_a_job_by_a_statement_of_its_own(dialect: str) -> None:  # E2 E52
    for file in (STORES / dialect).glob("*.py"):
        code = re.sub(r'"\s*f?"', "", file.read_text("utf-8"))
        assert not LEAVES[dialect].search(code), file.name


def test_a_phase_or_a_table_stands_for_its_state() -> None:  # E2
    some = frozenset({State.QUEUED, State.FAILED, State.CANCELLED})
    assert phases.in_states("job.phase", some) == "job.phase IN (0, 1, 4, 5)"
    assert phases.in_states("phase", frozenset({State.QUEUED, State.PROCESSING})) == "phase <= 2"
    assert phases.in_states("phase", frozenset({State.COMPLETE})) == "phase = 3"
    assert phases.in_states("phase", frozenset()) == "phase IN ()"
    assert state_tables.in_states("ready", some) == state_tables.in_states("deferred", some) == "true"
    assert state_tables.in_states("lease", some) == "false"
    assert state_tables.in_states("f.done", some) == "f.state IN (4, 5)"
    assert state_tables.in_states("done", frozenset({State.COMPLETE})) == "state = 3"
    assert state_tables.in_states("done", frozenset()) == "false"


def test_a_shared_statement_has_a_text_for_each_of_its_verbs() -> None:  # E2
    sqlite = statements("sqlite")
    assert "phase = 2\n" in sqlite["bury.fail"]
    assert "phase <= 2\n" in sqlite["bury.time_out"]
    assert "bury" not in sqlite
