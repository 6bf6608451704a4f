"""One class name means one class, so that a search finds one meaning."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
#: The stores have the same parts by design. The client's types and errors repeat those of the server with their meaning.
REPEATED = ("stores/", "client/types.py", "client/errors.py")


def test_a_class_name_means_one_class() -> None:
    files: dict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(REPEATED):
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    files[node.name].add(name)
    assert len(files) > 300
    assert {name: sorted(found) for name, found in files.items() if len(found) > 1} == {}
