"""Programs whose tasks run in child processes, each of which imports the program's script again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast

pytestmark = pytest.mark.slow

GUARD = 'if __name__ == "__main__":'
TASK = """
import asyncio
from holdfast import Holdfast

app = Holdfast("sqlite:///jobs.db", poll="50ms")

@app.task(timeout="30s", retry=1)
def add(a: int, b: int) -> int:
    return a + b

async def main():
    async with app:
        handle = await add.enqueue(1, 2)
        await app.run_worker(until_idle=True)
        print("result", await handle.result(timeout="10s"))

def in_a_thread():
    import threading
    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    thread.join()
"""


def run(folder: Path, ending: str, *command: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(f"{TASK}\n{ending}\n")
    ours = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return subprocess.run(
        [sys.executable, *(command or ("program.py",))],
        cwd=folder,
        env=ours,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def stored(folder: Path) -> int:
    async def count() -> int:
        async with Holdfast(f"sqlite:///{folder}/jobs.db") as app:
            return sum((await app.jobs.counts()).values())

    return asyncio.run(count())


def test_a_script_without_a_main_guard_is_refused_and_says_what_to_write(tmp_path: Path) -> None:  # E41
    done = run(tmp_path, "asyncio.run(main())")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("holdfast.errors.UsageError: program.py has tasks that run in child processes")
    assert last.endswith(f"put what it does under `{GUARD}`")
    assert stored(tmp_path) == 1  # its own


@pytest.mark.parametrize(
    "ending",
    [
        f"{GUARD}\n    asyncio.run(main())",
        f"{GUARD}\n    in_a_thread()",
        "import multiprocessing\nif multiprocessing.current_process().name == 'MainProcess':\n    asyncio.run(main())",
        f"try:\n    {GUARD}\n        asyncio.run(main())\nfinally:\n    pass",
    ],
)
def test_a_script_with_a_main_guard_runs_its_task_once(tmp_path: Path, ending: str) -> None:  # E41
    done = run(tmp_path, ending)
    assert (done.returncode, done.stdout) == (0, "result 3\n"), done.stderr
    assert stored(tmp_path) == 1


def test_a_module_is_refused_as_a_script_is_and_a_package_needs_no_guard(tmp_path: Path) -> None:  # E41
    done = run(tmp_path, "asyncio.run(main())", "-m", "program")
    assert done.stderr.strip().splitlines()[-1].endswith(f"put what it does under `{GUARD}`")
    assert stored(tmp_path) == 1
    (tmp_path / "package").mkdir()  # children do not import its __main__.py
    (tmp_path / "package" / "__main__.py").write_text(
        "import asyncio, program\nasyncio.run(program.main())\n"
    )
    done = run(tmp_path, "", "-m", "package")
    assert (done.returncode, done.stdout) == (0, "result 3\n"), done.stderr
    assert stored(tmp_path) == 2


def test_where_no_guard_is_seen_to_be_missing_the_child_stores_nothing(tmp_path: Path) -> None:  # E41
    """From a thread the script's own line is not seen: the child refuses to open the database, and the import goes on."""
    done = run(tmp_path, "in_a_thread()")
    assert done.stdout == "result 3\n"
    assert f"put that under `{GUARD}`" in done.stderr
    assert stored(tmp_path) == 1
