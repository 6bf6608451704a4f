"""Check the main guard of a program whose tasks run in child processes, which import its main script.

Without a guard the child would do everything that the script does: open the database, enqueue, run its own
worker. Three checks prevent that. `check_main` refuses to start a worker from an unguarded script.
`check_import` refuses to open a store while a child is still importing that script. `check_importing` refuses
to start a worker while a module is imported for its tasks, by a child or by a command such as `holdfast
worker`.
"""

from __future__ import annotations

import ast
import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType

from holdfast.errors import UsageError

#: An `if` that tests one of these names distinguishes a running script from an imported one.
_GUARDS = frozenset({"__name__", "current_process"})


#: The modules that this process is importing for their tasks.
_imported: list[str] = []


@contextmanager
def importing(module: str) -> Iterator[None]:
    """Mark *module* as being imported for its tasks inside the block, so that it cannot start a worker."""
    _imported.append(module)
    try:
        yield
    finally:
        _imported.remove(module)


def check_importing() -> None:
    """Raise `UsageError` while a module is imported for its tasks."""
    if _imported:
        raise UsageError(
            f"{_imported[-1]} starts a worker while it is imported;"
            ' put that under `if __name__ == "__main__":`'
        )


def check_main() -> None:
    """Raise `UsageError` if the main script is running and its current line is not inside a main guard."""
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if main is None or path is None or _is_package(main):
        return
    line = _line_in(main.__dict__)
    if line is None or _is_guarded(path, line):
        return
    raise UsageError(
        f"{os.path.basename(path)} has tasks that run in child processes, and each child imports it again;"
        ' put what it does under `if __name__ == "__main__":`'
    )


def check_import() -> None:
    """Raise `UsageError` in a child process that is still importing the main script of its program."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # multiprocessing's own flag
        raise UsageError(
            "a child process imports this script again, and must not run its statements;"
            ' put that under `if __name__ == "__main__":`'
        )


def _is_package(main: ModuleType) -> bool:
    """Return whether it is the `__main__.py` of `python -m package`, which children do not import."""
    return getattr(main.__spec__, "name", "").endswith(".__main__")


def _line_in(module: dict[str, object]) -> int | None:
    """Return the line of this module's body from which the caller was called, directly or not, if any."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals is module and frame.f_code.co_name == "<module>":
            return frame.f_lineno
        frame = frame.f_back
    return None


def _is_guarded(path: str, line: int) -> bool:
    try:
        with open(path, "rb") as source:
            tree = ast.parse(source.read())
    except (OSError, ValueError, SyntaxError):  # without the source only the child's own check can help
        return True
    return any(
        node.lineno <= line <= (node.end_lineno or line) and not _GUARDS.isdisjoint(_names(node.test))
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
    )


def _names(test: ast.expr) -> Iterator[str]:
    for node in ast.walk(test):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
