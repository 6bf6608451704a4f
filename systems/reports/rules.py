"""Which owner may use which documents. The task runs this check on every call, from any entry point."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast import Forbidden, PayloadError
from systems.reports.documents import Documents
from systems.reports.failures import Trouble
from systems.reports.prompt import LONGEST_INSTRUCTIONS
from systems.reports.settings import Settings

#: The owner of the reports that the watch enqueues.
WATCH = "watch"
#: The prefix of the owner of jobs that operators request.
KEY = "key:"


def make_check(settings: Settings, documents: Documents) -> Callable[[str | None, Mapping[str, Any]], None]:
    """Return the check of the task `report`. It raises `PayloadError` or `Forbidden`."""

    def check(owner: str | None, args: Mapping[str, Any]) -> None:
        if len(args["instructions"]) > LONGEST_INSTRUCTIONS:
            raise PayloadError(f"instructions have at most {LONGEST_INSTRUCTIONS:,} characters")
        if settings.documents_per_owner and is_person(owner):
            _must_read(documents, owner or "", args["source"])

    return check


def is_person(owner: str | None) -> bool:
    """Return whether this owner has a folder: it is neither an operator nor the watch."""
    return owner is not None and owner != WATCH and not owner.startswith(KEY)


def _must_read(documents: Documents, owner: str, source: str) -> None:
    try:
        _, key = documents.find(source)
    except Trouble as trouble:
        raise PayloadError(f"source: {trouble}") from None
    if not key.startswith(f"{owner}/"):
        raise Forbidden("This document is not in your folder.")
