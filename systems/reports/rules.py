"""Whose documents a report may be made of. The task asks this about every call, whatever road it came by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast import Forbidden, PayloadError
from systems.reports.documents import Documents
from systems.reports.failures import Trouble
from systems.reports.prompt import LONGEST_INSTRUCTIONS
from systems.reports.settings import Settings

#: Whose reports those of the watch are.
WATCH = "watch"
#: What the owners of jobs begin with that operators ask for themselves.
KEY = "key:"


def make_check(settings: Settings, documents: Documents) -> Callable[[str | None, Mapping[str, Any]], None]:
    """Return the check of the task `report`."""

    def check(owner: str | None, args: Mapping[str, Any]) -> None:
        if len(args["instructions"]) > LONGEST_INSTRUCTIONS:
            raise PayloadError(f"instructions have at most {LONGEST_INSTRUCTIONS:,} characters")
        if settings.documents_per_owner and is_person(owner):
            _must_read(documents, owner or "", args["source"])

    return check


def is_person(owner: str | None) -> bool:
    """Return whether this is an owner with a folder of its own: not an operator, and not the watch."""
    return owner is not None and owner != WATCH and not owner.startswith(KEY)


def _must_read(documents: Documents, owner: str, source: str) -> None:
    try:
        _, key = documents.find(source)
    except Trouble as trouble:
        raise PayloadError(f"source: {trouble}") from None
    if not key.startswith(f"{owner}/"):
        raise Forbidden("This document is not below your own folder.")
