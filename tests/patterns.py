"""Every regular expression in a tree of Python files, how it is used, and texts that would make a bad one slow."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

_USES = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")


@dataclass
class Found:
    """A pattern as the source has it: *expression* is its text, *uses* are the methods that read texts with it."""

    key: str  #: file:name, with #2 and so on for the others of that name
    module: str
    expression: str
    flags: str
    uses: set[str] = field(default_factory=set)

    def compiled(self) -> re.Pattern[Any]:
        """The pattern itself. NameError where it is made while the program runs."""
        names = vars(importlib.import_module(self.module))
        return re.compile(eval(self.expression, names), eval(self.flags, {"re": re}))


def patterns_of(root: Path, package: str) -> list[Found]:
    """All patterns of the *package* whose files lie in *root*."""
    found: list[Found] = []
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root).with_suffix("")
        module = ".".join([package, *inside.parts]).removesuffix(".__init__")
        found += _in_module(ast.parse(path.read_text("utf-8")), f"{package}/{inside.as_posix()}", module)
    return found


def _in_module(tree: ast.Module, file: str, module: str) -> list[Found]:
    found: list[Found] = []
    times: dict[str, int] = {}
    for owner, call in _calls(tree, "(module)"):
        use = _use_of(call)
        if use is None:
            continue
        times[owner] = times.get(owner, 0) + 1
        key = f"{file}:{owner}" + (f"#{times[owner]}" if times[owner] > 1 else "")
        arguments = _arguments(call, use)
        one = Found(key, module, arguments[0], arguments[1])
        one.uses = {use} if use != "compile" else _methods(tree, owner)
        found.append(one)
    return found


def _calls(node: ast.AST, owner: str) -> Iterator[tuple[str, ast.Call]]:
    for child in ast.iter_child_nodes(node):
        name = owner
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = child.name
        elif isinstance(child, ast.Assign) and owner == "(module)" and isinstance(child.targets[0], ast.Name):
            name = child.targets[0].id
        if isinstance(child, ast.Call):
            yield name, child
        yield from _calls(child, name)


def _use_of(call: ast.Call) -> str | None:
    """Which function of `re` is called; `pattern=` of a type is searched for by msgspec with `re`."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="re"), attr=attr) if attr in ("compile", *_USES):
            return attr
    return "search" if any(one.arg == "pattern" for one in call.keywords) else None


def _arguments(call: ast.Call, use: str) -> tuple[str, str]:
    named = {one.arg: ast.unparse(one.value) for one in call.keywords}
    if "pattern" in named:
        return named["pattern"], named.get("flags", "0")
    place = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(use, 2)
    flags = ast.unparse(call.args[place]) if len(call.args) > place else named.get("flags", "0")
    return ast.unparse(call.args[0]), flags


def _methods(tree: ast.Module, name: str) -> set[str]:
    """What is called on the name in this module. Patterns in a tuple, or for other modules, are searched for."""
    called = {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == name
    }
    return called & set(_USES) or {"sub"}


def imports_of_re(root: Path) -> Iterator[tuple[Path, str]]:
    """Ways to `re` that `patterns_of` does not see: other names for it or its functions, other engines."""
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in ("re", "regex", "re2"):
                yield path, ast.unparse(node)
            if isinstance(node, ast.Import):
                for one in node.names:
                    if one.name in ("regex", "re2") or (one.name == "re" and one.asname):
                        yield path, ast.unparse(node)


def reader(pattern: re.Pattern[Any], use: str) -> Callable[[Any], object]:
    """How a text is read with *pattern*."""
    if use in ("sub", "subn"):
        return lambda text: pattern.sub(lambda _: text[:0], text)
    if use == "finditer":
        return lambda text: list(pattern.finditer(text))
    method: Callable[[Any], object] = getattr(pattern, use)
    return method


# -- hostile texts ------------------------------------------------------------------------------------------------------
_SIGNS = "a0A .:/@-_=\"'\\,;\n!\0é~{}[]()<>#$%&*+?^`|\t"
_USUAL = [" ", "\n", "a", "0", "\\", '"', "a ", "a.", "0,"]


def hostile(pattern: re.Pattern[Any], *more: str) -> Iterator[tuple[str, str, str]]:
    """Units to repeat, with what stands before and behind them: parts of texts that the *pattern* fits, and *more*."""
    seen = set()
    for fitting in _fitting(pattern):
        parts = {fitting[place : place + size] for size in (1, 2, 3, 5) for place in range(len(fitting))}
        for unit in [*sorted(parts), fitting, *_USUAL, *more]:
            for prefix in {"", fitting[:1], fitting[: len(fitting) // 2]}:
                for suffix in ("", "\0"):
                    one = unit, prefix, suffix
                    if unit and one not in seen:
                        seen.add(one)
                        yield one


def _fitting(pattern: re.Pattern[Any]) -> list[str]:
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    flags = pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
    return _texts(_parser.parse(source, flags))[:6]


def _texts(nodes: Any) -> list[str]:
    """Texts that these nodes of a parsed pattern fit: one for every way through its alternatives, up to a few."""
    texts = [""]
    for kind, value in nodes:
        texts = [text + more for text in texts for more in _of(kind, value)][:8]
    return texts


def _of(kind: Any, value: Any) -> list[str]:
    if kind is sre.LITERAL:
        return [chr(value)]
    if kind is sre.NOT_LITERAL:
        return [next(sign for sign in _SIGNS if ord(sign) != value)]
    if kind is sre.ANY:
        return ["a"]
    if kind is sre.IN:
        return _in_set(value)
    if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        least, _, inner = value
        return [text * min(max(least, 1), 16) for text in _texts(inner)]
    if kind is sre.SUBPATTERN:
        return _texts(value[-1])
    if kind is sre.ATOMIC_GROUP:
        return _texts(value)
    if kind is sre.BRANCH:
        return [text for branch in value[1] for text in _texts(branch)[:2]]
    return [""]  # assertions and references fit no letters of their own


def _in_set(items: list[tuple[Any, Any]]) -> list[str]:
    """A letter for each part of a set, up to three; of a negated one the first and the last that we know."""
    if items[0][0] is sre.NEGATE:
        fits = [sign for sign in _SIGNS if not any(_is_of(sign, *item) for item in items)]
        return list(dict.fromkeys((fits[0], fits[-1])))
    firsts = [next((sign for sign in _SIGNS if _is_of(sign, *item)), "") for item in items]
    if not any(firsts):
        firsts = [
            chr(value if kind is sre.LITERAL else value[0]) for kind, value in items if kind is not sre.NEGATE
        ]
    return list(dict.fromkeys(filter(None, [*firsts[:1], *firsts[-2:]])))


def _is_of(sign: str, kind: Any, value: Any) -> bool:
    if kind is sre.LITERAL:
        return bool(ord(sign) == value)
    if kind is sre.RANGE:
        return bool(value[0] <= ord(sign) <= value[1])
    if kind is sre.CATEGORY:
        known = {
            sre.CATEGORY_DIGIT: r"\d", sre.CATEGORY_SPACE: r"\s", sre.CATEGORY_WORD: r"\w",
            sre.CATEGORY_NOT_DIGIT: r"\D", sre.CATEGORY_NOT_SPACE: r"\S", sre.CATEGORY_NOT_WORD: r"\W",
        }  # fmt: skip
        return re.match(known[value], sign) is not None
    return False
