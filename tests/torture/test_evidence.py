"""The page of evidence is what the records make, and the records are of runs that broke nothing."""

from __future__ import annotations

import re

import pytest

from tools.evidence.__main__ import generated_files
from tools.evidence.page import bound, percentile
from tools.evidence.records import COMMANDS, KEPT, Records, load


@pytest.fixture(scope="module")
def records() -> Records:
    return load()


def test_the_page_and_its_pictures_are_what_the_records_make() -> None:
    for path, text in generated_files().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m tools.evidence"


def test_no_recorded_run_broke_a_promise(records: Records) -> None:  # E5 E30 E50
    assert records.memory.broken == records.sqlite.broken == 0
    assert records.cuts.full.losses == 0
    assert records.cuts.normal.losses > 0  # the control
    for run in records.tortures:
        assert (run.lost, run.stuck, run.second_ends, run.broken) == ([], [], [], [])


def test_every_planted_bug_was_caught(records: Records) -> None:
    from tools.mutants import MUTANTS

    assert len(records.mutants.caught) >= 15
    assert None not in records.mutants.caught.values()
    assert records.mutants.caught.keys() <= {mutant.name for mutant in MUTANTS}


def test_every_record_is_made_by_a_command_that_is_told() -> None:
    assert COMMANDS.keys() == {path.stem for path in KEPT.glob("*.json")}
    page = (KEPT.parent / "evidence.md").read_text(encoding="utf-8")
    told = re.search(r"## Make it again\n\n```sh\n(.*?)```", page, re.S)
    assert told is not None
    assert all(line.startswith("python ") for line in told[1].splitlines())


def test_the_speed_table_has_both_stores_and_the_log_of_a_job(records: Records) -> None:
    assert {row[0] for row in records.speed} == {"PostgreSQL", "SQLite"}
    assert any(row[1] == "write-ahead log per job" for row in records.speed)
    assert {row[-1] for row in records.speed} <= {"met", "missed"}


def test_three_in_so_many_is_the_bound_when_none_broke() -> None:
    assert bound(3000) == "1 in 1,000"
    assert bound(3000, 1) == bound(0) == "none: it broke"


def test_a_percentile_of_nothing_is_a_dash() -> None:
    assert percentile([], 0.5) == "–"
    assert percentile([1.0, 2.0, 4.0], 0.99) == "4.0 s"
