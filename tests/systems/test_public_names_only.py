"""The systems are users of Holdfast: what they need is public, or it is missing."""

from __future__ import annotations

import ast
from pathlib import Path

SYSTEMS = Path(__file__).parents[2] / "systems"
#: Public as a module: its docstring and its `__all__` say what it offers.
PUBLIC = (
    "holdfast.celery",
    "holdfast.contrib.credits",
    "holdfast.external",
    "holdfast.logging",
    "holdfast.outbound",
    "holdfast.plugins",
    "holdfast.policies",
    "holdfast.records",
    "holdfast.server",
)


def test_systems_import_only_the_public_names_of_holdfast() -> None:
    inner: list[str] = []
    for module in SYSTEMS.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            inner += [f"{module.name}: {name}" for name in names if _is_inner(name)]
    assert inner == []


def test_only_make_run_starts_private_servers() -> None:
    users = {
        module.relative_to(SYSTEMS).as_posix()
        for module in SYSTEMS.rglob("*.py")
        if "devservices" in module.read_text()
    }
    assert users == {
        "common/running.py",
        "common/servers.py",
        *(f"{system}/run/__main__.py" for system in ("converter", "grading", "reports", "screenshots")),
    }


def test_systems_leave_the_engine_and_its_store_to_the_app() -> None:
    reached = [
        f"{module.name}:{node.lineno}"
        for module in SYSTEMS.rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("engine", "make_engine", "runtime")
    ]
    assert reached == []


def _is_inner(name: str) -> bool:
    return name.startswith("holdfast.") and name not in PUBLIC
