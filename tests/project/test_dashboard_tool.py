"""`tools/dashboard`, and what the packages carry of the dashboard."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from devservices.server import NotInstalled
from holdfast.server.dashboard_app import FOLDER
from tests.conftest import installed

ROOT = Path(__file__).parents[2]
LOCKED = json.loads((ROOT / "web" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
BUILD = "import sys, hatchling.build as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What the tool needs of a clone, with nothing built or installed."""
    for folder in ("web", "clients/typescript", "tools"):
        away = shutil.ignore_patterns("node_modules", "__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / "clone" / folder, ignore=away)
    shutil.copy(ROOT / "requirements-node.lock", tmp_path / "clone")
    (tmp_path / "clone" / "src" / "holdfast" / "server").mkdir(parents=True)
    return tmp_path / "clone"


def run(clone: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the tool where there is no Node.js, and no index that has it."""
    nothing = clone.parent / "empty"
    nothing.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "CI"))}
    given = {**kept, "PATH": str(nothing), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, **environment}
    command = [sys.executable, str(clone / "tools" / "dashboard"), *arguments]
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=60)


def test_without_node_and_registry_it_says_what_is_missing_and_the_rest_works(clone: Path) -> None:  # E68
    done = run(clone)
    assert done.returncode == 0
    state = (clone / "src" / "holdfast" / "server" / "dashboard_files" / "state.txt").read_text()
    for text in (done.stderr, state):
        assert "Node.js 20.19 or newer is missing" in text
        assert "python3 tools/dashboard" in text


@pytest.mark.parametrize(("arguments", "environment"), [((), {"CI": "true"}), (("required",), {})])
def test_where_it_is_required_its_absence_fails(
    clone: Path, arguments: tuple[str, ...], environment: dict[str, str]
) -> None:  # E68
    assert run(clone, *arguments, **environment).returncode == 1


def test_it_is_built_again_only_when_its_sources_have_changed(clone: Path) -> None:  # E68
    built = clone / "src" / "holdfast" / "server" / "dashboard_files"
    built.mkdir()
    (built / "index.html").write_text("built")
    tool = runpy.run_path(str(clone / "tools" / "dashboard"))
    (clone / ".boot").mkdir()
    (clone / ".boot" / "dashboard.built").write_text(tool["sources"]())
    assert run(clone).stderr == ""
    for changed in ("web/src/style.css", "clients/typescript/client.js", "web/package-lock.json"):
        before = (clone / changed).read_text()
        (clone / changed).write_text(before + "\n")
        assert "building" in run(clone).stderr
        assert (built / "index.html").read_text() == "built"  # served until there is another
        (clone / changed).write_text(before)
    assert run(clone).stderr == ""


def test_the_lock_files_name_no_host_and_every_platform() -> None:
    for name in ("web/package-lock.json", "requirements-node.lock"):
        assert "://" not in (ROOT / name).read_text(encoding="utf-8")
    named = {name.rpartition("node_modules/")[2] for name in LOCKED}
    for package in LOCKED.values():
        assert set(package.get("optionalDependencies", ())) <= named
    assert all("integrity" in package for name, package in LOCKED.items() if name)


def built() -> Path:
    if not (FOLDER / "index.html").exists():
        raise NotInstalled("the dashboard is not built: run `python3 tools/dashboard`")
    return FOLDER


@pytest.mark.slow
def test_the_wheel_and_the_source_archive_carry_the_dashboard_and_its_licences(tmp_path: Path) -> None:  # E68
    installed(built)
    command = [sys.executable, "-c", BUILD, "build_wheel", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=170)
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    home = "holdfast/server/dashboard_files/"
    inside = {name.removeprefix(home) for name in names if name.startswith(home)}
    assert inside == {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    assert {"index.html", "licenses.txt"} <= inside
    assert any(name.startswith("assets/") and name.endswith(".js.gz") for name in inside)


def test_a_wheel_without_the_dashboard_cannot_be_built(tmp_path: Path) -> None:  # E68
    archive = tmp_path / "archive"
    (archive / "tools").mkdir(parents=True)
    (archive / "src" / "holdfast").mkdir(parents=True)
    (archive / "src" / "holdfast" / "__init__.py").touch()
    shutil.copy(ROOT / "tools" / "build_hook.py", archive / "tools")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, archive)
    command = [sys.executable, "-c", BUILD, "build_wheel", str(tmp_path)]
    done = subprocess.run(command, cwd=archive, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "no dashboard: index.html is missing" in done.stderr
    assert not list(tmp_path.glob("*.whl"))


def test_nothing_that_is_built_is_in_git() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "server/dashboard_files/" not in tracked
    assert "node_modules" not in tracked
