"""ARCHITECTURE.md names only what exists, and draws the layers that import-linter checks."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from pathlib import Path

import pytest

from holdfast.engine.dispatch import DispatchStore
from holdfast.engine.job_queries import JobQueries
from holdfast.engine.lane_store import LaneStore
from holdfast.engine.ports import Store
from holdfast.outbox.port import OutboxStore

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
HOMES = (ROOT, ROOT / "src" / "holdfast", ROOT / "systems")


def test_every_path_of_the_page_exists() -> None:
    named = re.findall(r"`([\w./*<>-]+(?:/|\.py|\.md))`", PAGE)
    assert len(named) > 50
    missing = [name for name in named if not any((home / name).exists() for home in HOMES)]
    assert [name for name in missing if "*" not in name] == []


def test_every_package_is_drawn_in_the_order_of_its_layer() -> None:
    tree = PAGE.split("src/holdfast/\n", 1)[1].split("```")[0]
    drawn = [
        name.removesuffix("/").removesuffix(".py") for name in re.findall(r"^  (\w+(?:/|\.py))", tree, re.M)
    ]
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = [re.findall(r"\w+", layer) for layer in contract["contracts"][0]["layers"]]
    depth = {name: number for number, layer in enumerate(layers) for name in layer}
    assert set(drawn) == set(depth)
    assert drawn == sorted(drawn, key=lambda name: depth[name])


def test_every_folder_of_tests_has_the_name_of_a_package_or_is_described() -> None:
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/*.py")}
    packages = {path.parent.name for path in (ROOT / "src" / "holdfast").glob("*/__init__.py")}
    described = set(re.findall(r"`tests/(\w+)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    assert folders - packages - described == set()


def test_every_module_is_drawn_or_named() -> None:
    modules = {path.name for path in (ROOT / "src" / "holdfast").glob("*.py")} - {
        "__init__.py",
        "__main__.py",
    }
    assert [name for name in sorted(modules) if name not in PAGE] == []


#: The attributes by which one could get past the namespaces of an app, to its engine or its store.
PAST_THE_NAMESPACES = {
    "engine",
    "_engine",
    "make_engine",
    "closed_engine",
    "store",
    "_store",
    "make_store",
    "direct_store",
}


@pytest.mark.parametrize("package", ["server", "cli"])
def test_http_and_the_command_line_call_namespaces_only(package: str) -> None:
    found = [
        f"{path.name}:{node.lineno} .{node.attr}"
        for path in sorted((ROOT / "src" / "holdfast" / package).glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in PAST_THE_NAMESPACES
    ]
    assert found == []


def test_the_port_of_a_store_does_not_grow() -> None:
    """A new store implements every method of `Store` and of its parts."""
    parts = (Store, JobQueries, LaneStore, OutboxStore, DispatchStore)
    methods = [name for part in parts for name, value in vars(part).items() if inspect.isfunction(value)]
    assert len([name for name in methods if not name.startswith("_")]) <= 81
