"""The core does not know the extensions that come with it: it works, and is tested, without them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.commands import run_command

ROOT = Path(__file__).parents[2]
#: Tests of what sells jobs. Every other test passes without `contrib`.
SELLING = ("tests/contrib/", "tests/systems/", "tests/project/test_without_contrib.py")

SCRIPT = """
import asyncio, importlib, pkgutil, sqlite3, sys
import holdfast
from holdfast import Holdfast, State
from holdfast.cli import help_text

place = sys.argv[1]
assert holdfast.__file__.startswith(place), holdfast.__file__
for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)

app = Holdfast("sqlite:///jobs.db", poll="20ms")

@app.task
async def ship(order: int) -> int:
    return order

async def run():
    async with app:
        handle = await ship.enqueue(1)
        await app.run_worker(until_idle=True)
        assert (await app.jobs.get(handle.id)).state is State.COMPLETE

asyncio.run(run())
assert "enqueue" in help_text()
file = sqlite3.connect("jobs.db")
names = [name for (name,) in file.execute("SELECT name FROM sqlite_master")]
assert len(names) > 20
assert not [name for name in names if "credit" in name]
print("works")
"""


def test_the_core_works_without_contrib(tmp_path: Path) -> None:
    package = tmp_path / "src" / "holdfast"
    shutil.copytree(
        ROOT / "src" / "holdfast", package, ignore=shutil.ignore_patterns("contrib", "__pycache__")
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = run_command([sys.executable, "-c", SCRIPT, str(package)], cwd=tmp_path, env=environment)
    assert (ran.returncode, ran.stdout) == (0, "works\n"), ran.stderr


def test_only_tests_of_what_sells_jobs_import_contrib() -> None:
    users = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if "holdfast.contrib" in path.read_text(encoding="utf-8")
    ]
    assert users
    assert [name for name in users if not name.startswith(SELLING)] == []
