"""The documentation: its code runs, its links lead somewhere, its generated and listed parts are current.

Each page is run block by block in one namespace, one event loop and an empty directory. A block may use `await`. Tests
that a page defines are called with the fixtures they ask for. `<!-- no-test -->` before a block skips it.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.tasks.settings import Settings
from holdfast.tasks.task import EnqueueOptions, Policy
from tools import promises

ROOT = Path(__file__).resolve().parents[2]
#: Written by others, or made by a tool.
PAGES = sorted([ROOT / "README.md", ROOT / "ARCHITECTURE.md", *ROOT.glob("docs/**/*.md")])
_FENCE = re.compile(r"(?P<skip><!-- no-test -->\s*)?^```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    line: int
    code: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(text[: found.start("code")].count("\n"), found["code"])
        for found in _FENCE.finditer(text)
        if not found["skip"]
    ]


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=_name)
def test_the_code_of_this_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_DATABASE_URL", raising=False)
    names: dict[str, Any] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for block in blocks(page):
            known = set(names)
            run(block, page, names, runner)
            for test in [names[name] for name in names if name not in known and name.startswith("test_")]:
                given = {name: request.getfixturevalue(name) for name in inspect.signature(test).parameters}
                called = test(**given)
                if inspect.isawaitable(called):
                    runner.run(called)  # type: ignore[arg-type]


def run(block: Block, page: Path, names: dict[str, Any], runner: asyncio.Runner) -> None:
    tree = ast.parse(block.code, str(page))
    ast.increment_lineno(tree, block.line)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(tree, str(page), "exec", flags=flags, dont_inherit=True)
    result = eval(code, names)
    if inspect.iscoroutine(result):
        runner.run(result)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_link_of_this_page_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        target = link.partition("#")[0]
        if target and "://" not in target:
            assert (page.parent / target).exists(), f"{_name(page)} links to {link}"


def test_the_index_of_decisions_names_each_by_its_title() -> None:
    folder = ROOT / "docs" / "adr"
    pages = sorted(page for page in folder.glob("*.md") if page.name != "README.md")
    titles = [page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for page in pages]
    index = (folder / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^- \[(.+)\]\((.+)\)$", index, re.MULTILINE) == [
        (title, page.name) for title, page in zip(titles, pages, strict=True)
    ]


@pytest.mark.parametrize("tool", ["nightly", "reference", "promises"])
def test_the_generated_pages_are_current(tool: str) -> None:
    """In a process of its own: codes that other tests have registered are not part of the page."""
    checked = subprocess.run(
        [sys.executable, f"tools/{tool}.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    ("page", "kind"), [("settings", Settings), ("tasks", Policy), ("tasks", EnqueueOptions)]
)
def test_the_reference_names_every_option(page: str, kind: type[Any]) -> None:
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text(encoding="utf-8")
    missing = [name for name in kind.__annotations__ if f"| `{name}` |" not in text]
    assert missing == []


@pytest.mark.parametrize(("path", "least"), [("reference/failures.md", 50), ("explanation/security.md", 20)])
def test_every_test_that_this_page_names_is_there(path: str, least: int) -> None:
    page, file = (ROOT / "docs" / path).read_text(encoding="utf-8"), ""
    for alone in re.findall(r"`((?:server|stores|integration|systems)/[\w/]+\.py)`", page):
        assert (ROOT / "tests" / alone).exists() or (ROOT / "src" / "holdfast" / alone).exists(), alone
    named = re.findall(r"`([\w/]+\.py|…)::(test_\w+)`", page)
    assert len(named) == page.count("::") > least
    for path, name in named:
        file = file if path == "…" else path
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), f"{file}::{name}"


def test_a_mark_belongs_to_the_test_around_or_below_it() -> None:
    source = """
# E1: the whole file

# E2, E2a
# and a word about it
@decorated
async def test_one() -> None:  # E3 and E4: a reason
    # E5
    text = "# E6"

class TestMany:
    # E7; E8
    def test_two(self) -> None: ...

def helper() -> None: ...  # see E9
"""
    assert sorted(promises.marks_of(source)) == [
        ("E1", ""),
        ("E2", "test_one"),
        ("E2a", "test_one"),
        ("E3", "test_one"),
        ("E4", "test_one"),
        ("E5", "test_one"),
        ("E7", "TestMany::test_two"),
        ("E8", "TestMany::test_two"),
    ]


def test_the_example_works_on_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", f"sqlite:///{tmp_path}/hello.db")
    said = subprocess.run(
        [sys.executable, "-m", "examples.hello"], cwd=ROOT, capture_output=True, text=True, timeout=50
    )
    assert said.returncode == 0, said.stderr
    assert "Hello, Ada! It took 3 attempts." in said.stdout
    assert "78498" in said.stdout
    assert "BAD_ADDRESS" in said.stdout
