"""The top of the command line: help, dispatch, exit codes, finding an app, plug-ins."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import structlog
import typer

from holdfast.cli import COMMANDS, main, plugins
from holdfast.cli.apps import load_app
from holdfast.cli.exit_codes import EXIT_CODES, NothingFound, exit_code
from holdfast.errors import (
    Conflict,
    JobFailed,
    LeaseLost,
    SchemaMismatch,
    StoreUnavailable,
    UnknownJob,
    UnknownTask,
    UsageError,
)

APP = """
from holdfast import Holdfast

app = Holdfast("sqlite:///jobs.db")
thing = 3

@app.task
async def hello(name: str) -> str:
    return f"hello {name}"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; imports and logs are put back afterwards."""
    known = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("HOLDFAST_DATABASE_URL", raising=False)
    yield tmp_path
    for name in set(sys.modules) - known:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]
    structlog.reset_defaults()


def test_help_names_every_command_and_needs_neither_typer_nor_the_engine() -> None:  # E67
    script = (
        "import sys\n"
        "from holdfast.cli import main\n"
        "code = main(['--help'])\n"
        "slow = {'typer', 'rich', 'structlog', 'msgspec', 'asyncio', 'holdfast.app'} & set(sys.modules)\n"
        "assert not slow, slow\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(f"  {name} " in done.stdout for name in COMMANDS)


def test_no_command_shows_the_help_and_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Usage: holdfast" in capsys.readouterr().out


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("holdfast 0.")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:  # E67
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Usage: holdfast {name}" in shown
    assert "...\n" not in shown.replace("[ARGS]...\n", "")  # no sentence of a list of commands is cut off


def test_a_mistyped_command_is_answered_with_the_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jbos"]) == 2
    assert capsys.readouterr().err == "holdfast: no command 'jbos'; did you mean 'jobs'?\n"


def test_an_unknown_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "list", "--nonsense"]) == 2
    assert "--nonsense" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (UnknownTask("x", ()), 2),
        (Conflict("x"), 3),
        (LeaseLost("x", 1), 3),
        (UnknownJob("x"), 4),
        (NothingFound("x"), 4),
        (StoreUnavailable("x"), 5),
        (SchemaMismatch("x"), 5),
        (JobFailed("x", "failed", None, None), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_every_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert exit_code(error) == code


def test_the_documented_exit_codes_are_those_of_the_code() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text()
    assert all(f"| {code} | {text} |" in page for code, text in EXIT_CODES.items())


def test_every_command_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text()
    assert [name for name in COMMANDS if f"`holdfast {name}" not in page] == []


# -- finding an app ---------------------------------------------------------------------------------------------------
def test_an_app_is_found_in_the_working_directory(folder: Path) -> None:
    (folder / "shop_found.py").write_text(APP)
    assert set(load_app("shop_found:app").tasks) == {"hello"}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("shop_near", "does not name an app; say pkg.module:name"),
        ("shop_nea:app", "no module 'shop_nea' (tried to import shop_nea); did you mean shop_near?"),
        ("shop_near:ap", "shop_near has no 'ap'; did you mean shop_near:app?"),
        ("shop_near:thing", "shop_near:thing is a int, not a Holdfast app"),
        ("shop_near.part:app", "no module 'shop_near.part'"),
        ("zzz.qqq:app", "no module 'zzz' (tried to import zzz.qqq)"),
    ],
)
def test_an_app_that_is_not_there_is_answered_with_what_was_tried(folder: Path, name: str, says: str) -> None:
    (folder / "shop_near.py").write_text(APP)
    with pytest.raises(UsageError) as caught:
        load_app(name)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import not_installed_anywhere", "No module named 'not_installed_anywhere' (shop_broken.py line 1)"),
        ("x = 1\n1 / 0", "ZeroDivisionError: division by zero (shop_broken.py line 2)"),
        ("x = 1\ny = (", "SyntaxError: '(' was never closed (shop_broken.py line 2)"),
        (
            "from holdfast import Holdfast\napp = Holdfast()\n@app.schedule('24h')\n@app.task\ndef f(): ...",
            "'24h' is not a schedule; write Cron(…) or Every(…) (shop_broken.py line 3)",
        ),
    ],
)
def test_an_app_that_fails_to_import_is_told_in_a_line_with_its_place(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    (folder / "shop_broken.py").write_text(text)
    assert main(["worker", "shop_broken:app"]) == 2
    first, *more = capsys.readouterr().err.splitlines()
    assert first.startswith("holdfast: importing shop_broken failed: ")
    assert says in first
    assert more == [] or "shop_broken.py" in more[1]  # a traceback that has no frame says nothing more


def test_an_import_that_fails_deep_in_a_package_shows_the_way_there(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = folder / "shop_deep"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "app.py").write_text("import os\nfrom shop_deep import rates\n")
    (package / "rates.py").write_text(
        "password = 'hunter2'\n\n\ndef read():\n    return {}['EUR']\n\n\nread()\n"
    )
    assert main(["worker", "shop_deep.app:app"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "holdfast: importing shop_deep.app failed: KeyError: 'EUR' (shop_deep/rates.py line 5)",
        "Traceback (most recent call last):",
        '  File "shop_deep/app.py", line 2, in <module>',
        '  File "shop_deep/rates.py", line 8, in <module>',
        '  File "shop_deep/rates.py", line 5, in read',
        "KeyError",
    ]


def test_a_worker_without_tasks_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "shop_empty.py").write_text("from holdfast import Holdfast\napp = Holdfast('sqlite:///e.db')")
    assert main(["worker", "shop_empty:app"]) == 2
    assert "no tasks" in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--processes", "2"]])
def test_an_empty_list_of_queues_does_not_stand_for_all(
    folder: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    (folder / "shop_queues.py").write_text(APP)
    assert main(["worker", "shop_queues:app", "--queues", "", *more]) == 2
    assert capsys.readouterr().err == "holdfast: --queues names no queue; leave it out to serve all\n"


# -- the database -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("command", [["jobs", "list"], ["dead", "list"], ["events"], ["doctor"]])
def test_looking_does_not_create_a_database(
    folder: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert main([*command, "--url", "sqlite:///missing.db"]) == 5
    err = capsys.readouterr().err
    assert err.startswith("holdfast: there is no database missing.db")
    assert err.count("\n") == 1
    assert not (folder / "missing.db").exists()


def test_migrate_twice_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "--url", "sqlite:///new.db", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["migrations"] != []
    assert main(["migrate", "--url", "sqlite:///new.db"]) == 0
    assert capsys.readouterr().out == "up to date\n"


def test_the_environment_names_the_database(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["migrate", "--url", "sqlite:///env.db"])
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "sqlite:///env.db")
    capsys.readouterr()
    assert main(["jobs", "counts", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["queued"] == 0


def test_a_password_in_an_error_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", "postgresql://me:hunter2@host/db"]) == 2
    assert "hunter2" not in capsys.readouterr().err


# -- plug-ins ---------------------------------------------------------------------------------------------------------
extra = typer.Typer()


@extra.command()
def greet(name: str) -> int:
    print(f"greetings {name}")
    return 7


def plain(args: list[str]) -> int:
    print("plain", *args)
    return 0


def _add(monkeypatch: pytest.MonkeyPatch, **commands: str) -> None:
    found = [EntryPoint(name, value, plugins.GROUP) for name, value in commands.items()]
    monkeypatch.setattr(plugins, "entry_points", lambda group: found)


def test_a_package_can_add_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # E67
    _add(monkeypatch, greet=f"{__name__}:extra", plain=f"{__name__}:plain")
    assert main(["greet", "you"]) == 7
    assert main(["plain", "a", "b"]) == 0
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "greetings you\nplain a b\n" in out
    assert "  greet      from" in out


def test_a_plug_in_that_cannot_be_loaded_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _add(monkeypatch, broken="no_such_module_at_all:app")
    assert main(["broken"]) == 2
    assert "cannot be loaded" in capsys.readouterr().err


def test_a_project_adds_commands_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # E67
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast.commands]\nstock = "warehouse:main"\n')
    (tmp_path / "warehouse.py").write_text("def main(args):\n    print('in stock:', *args)\n    return 3\n")
    assert main(["stock", "nails"]) == 3
    assert capsys.readouterr().out == "in stock: nails\n"


def test_a_project_whose_commands_cannot_be_read_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.holdfast]\ncommands = 7\n")
    assert main(["stock"]) == 2
    assert "tool.holdfast.commands is a table" in capsys.readouterr().err


def test_a_plug_in_cannot_replace_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    _add(monkeypatch, jobs=f"{__name__}:plain")
    assert "jobs" not in plugins.plugins()


def test_errors_out_of_a_task_group_are_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _add(monkeypatch, grouped=f"{__name__}:fail_in_a_group")
    assert main(["grouped"]) == 5
    assert capsys.readouterr().err == "holdfast: gone\n"


def fail_in_a_group(args: list[str]) -> int:
    async def fail() -> None:
        raise StoreUnavailable("gone")

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    asyncio.run(run())
    return 0


def test_completion_knows_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # E67
    monkeypatch.setenv("_HOLDFAST_COMPLETE", "complete_zsh")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "holdfast jo")
    with pytest.raises(SystemExit):
        main([])
    assert "jobs" in capsys.readouterr().out
