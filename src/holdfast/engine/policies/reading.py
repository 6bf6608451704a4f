"""From the text of `holdfast.toml` to `Policies`: whole and checked, or a `UsageError` of one line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path as FilePath
from typing import Any, TypeVar

from holdfast.domain.breaker import BreakerPolicy
from holdfast.domain.budget import BudgetPolicy
from holdfast.domain.fairness import LEVELS, WEIGHTS
from holdfast.domain.guard import DependencyPolicy
from holdfast.domain.limiter import LimiterPolicy
from holdfast.domain.limits import Limit, OwnerPolicy, Quota
from holdfast.domain.moves import Kind
from holdfast.domain.suggest import suggest
from holdfast.domain.validation import number, whole
from holdfast.engine import plugins
from holdfast.engine.policies.line_numbers import line_numbers_of
from holdfast.engine.policies.sections import read_limit, read_section
from holdfast.engine.policies.tables import PolicySource, Table, words
from holdfast.engine.policies.values import Policies
from holdfast.errors import UsageError

T = TypeVar("T")


def load(path: FilePath | str) -> Policies:
    """Read and check the file of that name."""
    file = str(path)
    try:
        text = FilePath(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: it is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise UsageError(f"{file}: it cannot be read: {error.strerror or error}") from None
    return loads(text, file)


def loads(text: str, file: str = "holdfast.toml") -> Policies:
    """Read and check *text*; *file* is what errors call it."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        found = re.search(r" \(at line (\d+), column (\d+)\)", said)
        line = int(found[1]) if found else text.count("\n") + 1
        why = said[: found.start()] if found else said.removesuffix(" (at end of document)")
        raise UsageError(f"{file}:{line}: not TOML: {why.lower()}; see https://toml.io") from None
    except RecursionError:
        raise UsageError(f"{file}: not a policy file: it is nested too deeply") from None
    return _policies(Table(PolicySource(file, line_numbers_of(text)), (), values))


def _policies(root: Table) -> Policies:
    plug = root.table("plugins")
    quotas = _each(root, "quotas", lambda section: section.build(Quota))
    policies = Policies(
        tasks=_each(root, "tasks", read_section),
        queues=_each(root, "queues", read_section),
        dependencies=_each(root, "dependencies", _dependency),
        owners=_each(root, "owners", lambda section: _owner(section, quotas)),
        quotas=quotas,
        priorities=_priorities(root.table("priorities")),
        **(_plugins(plug) if plug is not None else {}),
        source=root.source,
    )
    root.end()
    return policies


def _each(root: Table, key: str, read: Callable[[Table], T]) -> dict[str, T]:
    sections = root.table(key)
    return {} if sections is None else {name: read(section) for name, section in sections.named()}


# -- owners and priorities ----------------------------------------------------------------------------------------------
def _owner(section: Table, quotas: Mapping[str, Quota]) -> OwnerPolicy:
    def known(value: Any) -> str:
        if not isinstance(value, str) or value not in quotas:
            raise UsageError(f"there is no quota {value!r:.60} in this file; {suggest(str(value), quotas)}")
        return value

    weight = section.read("weight", lambda value: number("weight", value, 0.001, 1000))
    quota, limits = section.read("quota", known), section.table("limits")
    most = section.read("max_attempts", lambda value: whole("max_attempts", value, 1, 1000))
    section.end()
    limit = Limit() if limits is None else read_limit(limits)
    if limits is not None and limit.concurrency is not None:
        raise limits.wrong(
            "concurrency",
            "an owner has a rate over all queues; how many run at once is said by a task's per_owner",
        )
    return OwnerPolicy(weight=1.0 if weight is None else weight, quota=quota, limit=limit, max_attempts=most)


def _priorities(section: Table | None) -> dict[str, int]:
    weights = dict(WEIGHTS)
    if section is None:
        return weights
    for name in LEVELS:
        weight = section.read(name, lambda value: whole("the weight", value, 1, 1000))
        weights[name] = weights[name] if weight is None else weight
    section.end()
    for higher, lower in pairwise(LEVELS):
        if weights[higher] < weights[lower]:
            key = higher if higher in section else lower
            raise section.wrong(
                key, f"{higher} ({weights[higher]}) weighs less than {lower} ({weights[lower]})"
            )
    return weights


# -- dependencies and plug-ins ----------------------------------------------------------------------------------------
def _dependency(section: Table) -> DependencyPolicy:
    parts: dict[str, Any] = {}
    for key, make in (("breaker", BreakerPolicy), ("limiter", LimiterPolicy), ("budget", BudgetPolicy)):
        if key not in section:
            section.read(key, lambda value: value)
        elif section.read(key, lambda value: value is False):
            parts[key] = None
        elif (knobs := section.table(key)) is not None:
            parts[key] = knobs.build(make)
    section.end()
    return DependencyPolicy(**parts)


def _plugins(section: Table) -> dict[str, Any]:
    classifiers = section.read("classifiers", lambda value: tuple(map(plugins.classifier, words(value))))
    gates = section.read("gates", lambda value: tuple((name, plugins.gate(name)) for name in words(value)))
    notifiers = section.table("notifiers")
    section.end()
    found = {} if notifiers is None else {name: _kinds(notifiers, name) for name in notifiers}
    return {"classifiers": classifiers or (), "gates": gates or (), "notifiers": found}


def _kinds(section: Table, name: str) -> frozenset[str]:
    """The kinds of events that the notifier *name* is called for; all of them for "*"."""

    def known(value: Any) -> frozenset[str]:
        plugins.notifier(name)  # raises where it is not installed
        for kind in (kinds := words(value)):
            if kind not in Kind.__members__ and kind != "*":
                raise UsageError(f"there is no event {kind!r:.60}; {suggest(kind, Kind.__members__)}")
        return frozenset(Kind.__members__ if "*" in kinds else kinds)

    return section.read(name, known) or frozenset()
