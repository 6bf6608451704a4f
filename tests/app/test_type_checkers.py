"""What type checkers see of a user's program: the types it gets, and the mistakes that are found before it runs.

`#> TYPE` is what `reveal_type` of the line says, `#! WORD` an error whose text has that word. Lines without a mark are clean.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any
from holdfast import THIS_JOB, Handle, Holdfast, Job, Retry, Task, current_job

app = Holdfast("sqlite:///jobs.db")

@dataclass
class Receipt:
    number: int

@app.task
async def send(to: str, copies: int = 1) -> str:
    return to * copies

@app.task(queue="money", retry=3)
async def pay(amount: int, *, job: Job = THIS_JOB) -> Receipt:
    return Receipt(amount + job.attempt)

@app.task(timeout="1m", execute="thread")
def render(page: int) -> bytes:
    return bytes(page)

@app.task
async def forget() -> None: ...

@app.task
async def choose(by: Receipt | str) -> dict[int, Receipt] | None:
    return None

@app.task
async def without_default(page: int, *, job: Job) -> int:
    return page

class Mailer:
    def __init__(self, task: Task[[str], Coroutine[Any, Any, str]]) -> None:
        self.task = task

def wait_for(handle: Handle[object]) -> None: ...

async def uses() -> None:
    sent = await send.enqueue("ann")
    reveal_type(sent)  #> Handle[str]
    reveal_type(await sent.result())  #> str
    reveal_type(await (await send.enqueue("ann", copies=2)).result(timeout="1s"))  #> str
    reveal_type(await pay.enqueue(3))  #> Handle[Receipt]
    reveal_type((await (await pay.enqueue(3)).result()).number)  #> int
    reveal_type(await render.enqueue(1))  #> Handle[bytes]
    reveal_type(await (await render.enqueue(1)).result())  #> bytes
    reveal_type(await forget.enqueue())  #> Handle[None]
    reveal_type(await pay.options(owner="ada", delay="1m").enqueue(3))  #> Handle[Receipt]
    reveal_type(await render.options(priority="high").enqueue(3))  #> Handle[bytes]
    reveal_type(await send("ann"))  #> str
    reveal_type(render(1))  #> bytes
    reveal_type(current_job().attempt)  #> int
    reveal_type(await choose.enqueue("cash"))  #> Handle[dict[int, Receipt] | None]
    reveal_type(await (await choose.enqueue(Receipt(1))).result())  #> dict[int, Receipt] | None
    wait_for(sent)
    wait_for("sent")  #! wait_for
    await choose.enqueue(3)  #! enqueue
    await without_default.enqueue(1)  #! enqueue
    await forget.enqueue(1)  #! enqueue
    send.delay("ann")  #! delay
    Retry(max_attempts="3")  #! int
    Retry(only=["ValueError"])  #! str
    await send.enqueue(1)  #! enqueue
    await send.enqueue()  #! enqueue
    await send.enqueue("ann", copy=2)  #! enqueue
    await pay.enqueue("3")  #! enqueue
    await pay.options(owner="ada").enqueue("3")  #! enqueue
    await send.enqueue_many(3)  #! enqueue_many
    send.options(ownr="ann")  #! ownr
    send.options(delay=object())  #! delay
    Holdfast(leas="1s")  #! leas
    await app.jobs.list(stat="failed")  #! stat
    await app.queues.pause("mail", duration=object())  #! duration
    app.task(execute="fibre")  #! task
    reveal_type((await send.enqueue_many(["ann"]))[0])  #> Handle[str]
    reveal_type((await app.jobs.list(state="failed")).rows)  #> list[JobRow]
    reveal_type((await app.dead_letters.list())[0].id)  #> JobId
    number: int = await sent.result()  #! int

def plain_code() -> None:
    reveal_type(send.enqueue_sync("ann"))  #> Handle[str]
    reveal_type(render.enqueue_sync(1))  #> Handle[bytes]
    reveal_type(pay.options(key="k").enqueue_sync(3))  #> Handle[Receipt]
    render.enqueue_sync("1")  #! enqueue
    reveal_type(send.enqueue_sync("ann").result_sync("1s"))  #> str
    reveal_type(app.sync.jobs.retry("id"))  #> int
    app.sync.jobs.retri("id")  #! retri
"""
LINES = PROGRAM.split("\n")
TYPES = {n: line.split("#> ")[1] for n, line in enumerate(LINES, 1) if "#> " in line}
ERRORS = {n: line.split("#! ")[1] for n, line in enumerate(LINES, 1) if "#! " in line}

#: Two kinds of notes, by line: types that were asked for, and errors.
Found = tuple[dict[int, str], dict[int, str]]


def _mypy(program: Path) -> Found:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-pretty", str(program)]
    command += ["--cache-dir", str(ROOT / ".mypy_cache" / "programs"), "--config-file", ""]
    answer = subprocess.run(
        command, cwd=program.parent, env={"MYPYPATH": str(ROOT / "src")}, capture_output=True, text=True
    )
    notes = re.findall(rf"{program.name}:(\d+): (note|error): (.*)", answer.stdout)
    assert notes, answer.stdout + answer.stderr
    types = {
        int(line): text.split('"')[1] for line, kind, text in notes if kind == "note" and "Revealed" in text
    }
    return types, {int(line): text for line, kind, text in notes if kind == "error"}


def _basedpyright(program: Path) -> Found:
    settings = {
        "include": [program.name],
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "standard",
        "pythonVersion": "3.11",
    }
    (program.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    answer = subprocess.run(command, cwd=program.parent, capture_output=True, text=True)
    notes = [
        (one["range"]["start"]["line"] + 1, one["severity"], one["message"])
        for one in json.loads(answer.stdout)["generalDiagnostics"]
    ]
    types = {line: text.split('"')[-2] for line, kind, text in notes if kind == "information"}
    return types, {line: text for line, kind, text in notes if kind == "error"}


def _short(name: str) -> str:
    return re.sub(r"\b(?:\w+\.)+", "", name)


def test_docs_and_examples_ask_for_the_job_in_the_form_that_checkers_accept() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.py")]
    pages += [*ROOT.glob("systems/**/*.py"), *ROOT.glob("benchmarks/**/*.py"), *ROOT.glob("src/**/*.py")]
    bare = re.compile(r"\*, job: Job(?! = THIS_JOB)")
    assert [str(page) for page in pages if bare.search(page.read_text())] == []


@pytest.mark.slow
@pytest.mark.parametrize("checker", [_mypy, _basedpyright])
def test_a_checker_sees_what_a_task_returns_and_what_is_wrong_with_a_call(
    checker: Callable[[Path], Found], tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    types, errors = checker(program)
    assert {line: _short(kind) for line, kind in types.items()} == TYPES
    assert errors.keys() == ERRORS.keys()
    for line, word in ERRORS.items():
        assert word in errors[line], f"{LINES[line - 1]}: {errors[line]}"
