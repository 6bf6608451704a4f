"""Read the text of `holdfast.toml` into checked `Policies`, or raise a `UsageError` of one line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path as FilePath
from typing import Any, TypeVar

from holdfast.errors import UsageError
from holdfast.jobs.moves import Kind
from holdfast.resilience.fairness import LEVELS, WEIGHTS
from holdfast.resilience.limits import Limit, OwnerPolicy, Quota
from holdfast.tasks import plugins
from holdfast.tasks.options import Reader
from holdfast.tasks.policy_file.line_numbers import line_numbers_of
from holdfast.tasks.policy_file.sections import read_limit, read_section
from holdfast.tasks.policy_file.tables import PolicySource, Table, words
from holdfast.tasks.policy_file.values import MECHANISMS, DependencySection, Policies
from holdfast.values.suggest import suggest
from holdfast.values.validation import number, whole

T = TypeVar("T")

_NONE: Mapping[str, Reader] = {}


@dataclass(frozen=True, slots=True)
class Document:
    """The values of a policy file as they are written in it, and where. Without a file it is empty."""

    values: Mapping[str, Any] = field(default_factory=dict)
    source: PolicySource = field(default_factory=PolicySource)


def load(path: FilePath | str, extension_options: Mapping[str, Reader] = _NONE) -> Policies:
    """Read and check the policy file at *path*. Tasks and queues may have the *extension_options* too.

    Raises:
        UsageError: It cannot be read, or is not valid.
    """
    return read_policies(read_document(path), extension_options)


def loads(
    text: str, file: str = "holdfast.toml", extension_options: Mapping[str, Reader] = _NONE
) -> Policies:
    """Read and check the *text* of a policy file. Errors name it *file*.

    Raises:
        UsageError: It is not valid.
    """
    return read_policies(parse(text, file), extension_options)


def read_document(path: FilePath | str) -> Document:
    """Return the values of the policy file at *path*, which are not checked.

    Raises:
        UsageError: It cannot be read, or is not TOML.
    """
    file = str(path)
    try:
        text = FilePath(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: it is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise UsageError(f"{file}: it cannot be read: {error.strerror or error}") from None
    return parse(text, file)


def parse(text: str, file: str) -> Document:
    """Return the values in the *text* of a policy file, which are not checked.

    Raises:
        UsageError: It is not TOML.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        position = re.search(r" \(at line (\d+), column (\d+)\)", message)
        line = int(position[1]) if position else text.count("\n") + 1
        why = message[: position.start()] if position else message.removesuffix(" (at end of document)")
        raise UsageError(f"{file}:{line}: not TOML: {why.lower()}; see https://toml.io") from None
    except RecursionError:
        raise UsageError(f"{file}: not a policy file: it is nested too deeply") from None
    return Document(values, PolicySource(file, line_numbers_of(text)))


def read_policies(document: Document, extension_options: Mapping[str, Reader] = _NONE) -> Policies:
    """Return the checked policies of a *document*.

    Raises:
        UsageError: It is not valid.
    """
    root = Table(document.source, (), document.values)
    plugin_table = root.table("plugins")
    quotas = _each(root, "quotas", lambda section: section.build(Quota))
    policies = Policies(
        tasks=_each(root, "tasks", lambda section: read_section(section, extension_options)),
        queues=_each(root, "queues", lambda section: read_section(section, extension_options)),
        dependencies=_each(root, "dependencies", _dependency),
        owners=_each(root, "owners", lambda section: _owner(section, quotas)),
        quotas=quotas,
        priorities=_priorities(root.table("priorities")),
        **(_plugins(plugin_table) if plugin_table is not None else {}),
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
            "an owner has a rate over all queues; set how many run at once with a task's per_owner",
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
def _dependency(section: Table) -> DependencySection:
    mechanisms: dict[str, Any] = {}
    for key, make in MECHANISMS.items():
        if section.read(key, lambda value: value is False):
            mechanisms[key] = None
        elif (part := section.table(key)) is not None:
            part.build(make)  # checks the values; those that it lacks may come from the code
            mechanisms[key] = part.values
    section.end()
    return DependencySection(path=section.path, mechanisms=mechanisms)


def _plugins(section: Table) -> dict[str, Any]:
    classifiers = section.read("classifiers", lambda value: tuple(map(plugins.classifier, words(value))))
    gates = section.read("gates", lambda value: tuple((name, plugins.gate(name)) for name in words(value)))
    notifiers = section.table("notifiers")
    section.end()
    position = {} if notifiers is None else {name: _kinds(notifiers, name) for name in notifiers}
    return {"classifiers": classifiers or (), "gates": gates or (), "notifiers": position}


def _kinds(section: Table, name: str) -> frozenset[str]:
    """Return the kinds of events for which the notifier *name* is called. "*" stands for all."""

    def known(value: Any) -> frozenset[str]:
        plugins.notifier(name)  # raises if it is not installed
        for kind in (kinds := words(value)):
            if kind not in Kind.__members__ and kind != "*":
                raise UsageError(f"there is no event {kind!r:.60}; {suggest(kind, Kind.__members__)}")
        return frozenset(Kind.__members__ if "*" in kinds else kinds)

    return section.read(name, known) or frozenset()
