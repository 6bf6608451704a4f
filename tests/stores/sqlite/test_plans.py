"""How SQLite carries statements out: none of them walks along all the jobs that ever were."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from holdfast import Holdfast
from holdfast.stores.sqlite.move import SQL

#: A parameter by name.
_NAME = re.compile(r"(?<![:\w]):([a-z_]\w*)")
#: A parameter by number.
_NUMBER = re.compile(r"\?(\d)")
#: A walk along a whole table of jobs, whatever the statement calls it.
_WALK = re.compile(r"SCAN (holdfast_job|job|j|o)$")
#: Their `j` is the one job that is asked about.
_OWN = {"queue_position"}


def test_no_statement_looks_at_every_job(tmp_path: Path) -> None:  # E54
    asyncio.run(Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}").migrate())
    walks, asked = {}, 0
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as file:
        for name, sql in SQL.items():
            if "holdfast_job" not in sql or name in _OWN:
                continue
            numbered = [int(number) for number in _NUMBER.findall(sql)]
            given: Any = ["1"] * max(numbered) if numbered else dict.fromkeys(_NAME.findall(sql), "1")
            plan = [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {sql}", given)]
            asked += 1
            if found := [step for step in plan if _WALK.match(step)]:
                walks[name] = found
    assert asked > 20
    assert walks == {}
