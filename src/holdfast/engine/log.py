"""The engine's voice: an event and its facts, said once, wherever the application wants to hear it.

When structlog is configured (the CLI does, an application may) lines go there, otherwise to the standard library's logging.
How much is said is the level of the standard logger `holdfast` either way: warnings and worse, unless told otherwise, so
that a program which merely uses Holdfast is not talked into its output. Secrets are hidden here already: how the application
writes its lines is its own matter.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from typing import Any

from holdfast.domain.verdict import Failure
from holdfast.logs import redact_text, redacted


class Log:
    __slots__ = ("_name", "_std")

    def __init__(self, name: str) -> None:
        self._name, self._std = name, logging.getLogger(name)

    def debug(self, event: str, **facts: Any) -> None:
        self._say(logging.DEBUG, event, facts)

    def info(self, event: str, **facts: Any) -> None:
        self._say(logging.INFO, event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        self._say(logging.WARNING, event, facts)

    def hears(self, level: int) -> bool:
        """Whether a line of this level would be said at all: for lines whose facts are dear to gather."""
        return self._std.isEnabledFor(level)

    def exception(self, event: str, **facts: Any) -> None:
        """For bugs of ours only: with the stack."""
        self._say(logging.ERROR, event, {**facts, "exc_info": True})

    def _say(self, level: int, event: str, facts: dict[str, Any]) -> None:
        if not self._std.isEnabledFor(level):
            return
        stack = facts.pop("exc_info", False)
        facts = {name: redacted(name, value) for name, value in facts.items()}
        # Importing it takes a third of our own start: whoever wants it has it.
        structlog = sys.modules.get("structlog")
        if structlog is not None and structlog.is_configured():
            structlog.get_logger(self._name).log(
                level, event, **facts, **({"exc_info": True} if stack else {})
            )
        else:
            told = " ".join(f"{name}={value}" for name, value in facts.items())
            self._std.log(level, "%s %s", event, told, exc_info=stack)


def presentable(failure: Failure) -> Failure:
    """*failure* as it may be written down: what an exception said, without the secrets that can be told by their looks."""
    message, detail = redact_text(failure.message), redact_text(failure.detail)
    if (message, detail) == (failure.message, failure.detail):
        return failure
    return replace(failure, message=message, detail=detail)
