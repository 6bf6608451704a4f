"""Fixtures that install packages with plug-ins for one test; import those that a test file needs."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.tasks import plugins

ROOT = Path(__file__).resolve().parents[1]
FINDERS = (plugins.classifier, plugins.backoff, plugins.gate, plugins.notifier, plugins.transport)


def forget_plugins() -> None:
    for find in FINDERS:
        find.cache_clear()


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """A plug-in is found once in a process; each test finds it anew."""
    forget_plugins()
    yield
    forget_plugins()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example as people would install it."""
    place = tmp_path_factory.mktemp("acme")
    shutil.copytree(ROOT / "examples" / "holdfast_plugin", place / "source")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)],
        cwd=place / "source",
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    [wheel] = place.glob("*.whl")
    return wheel


@pytest.fixture
def acme(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example package, installed for one test."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    yield from on_path(tmp_path, monkeypatch, "acme_holdfast")


def on_path(place: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(place))
    importlib.invalidate_caches()
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


def installed_package(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str, entry_points: str
) -> Iterator[None]:
    """Install the module or package *name*, which is in the folder *place*, with these *entry_points*."""
    info = place / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    yield from on_path(place, monkeypatch, name)
