"""ARCHITECTURE.md names only what exists, and draws the layers that import-linter checks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

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


def test_every_module_is_drawn_or_named() -> None:
    modules = {path.name for path in (ROOT / "src" / "holdfast").glob("*.py")} - {
        "__init__.py",
        "__main__.py",
    }
    assert [name for name in sorted(modules) if name not in PAGE] == []
