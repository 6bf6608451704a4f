"""The systems are users of Holdfast: what they need is public, or it is missing."""

from __future__ import annotations

import ast
from pathlib import Path

SYSTEMS = Path(__file__).parents[2] / "systems"


def test_systems_import_only_the_public_names_of_holdfast() -> None:
    inner: list[str] = []
    for module in SYSTEMS.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            inner += [f"{module.name}: {name}" for name in names if name.startswith("holdfast.")]
    assert inner == []
