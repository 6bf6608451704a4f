"""The exit codes of commands, and how errors are printed."""

from __future__ import annotations

import sys

from holdfast.errors import (
    Conflict,
    HoldfastError,
    JobFailed,
    LeaseLost,
    NotFound,
    StoreError,
    UsageError,
)

OK, PROBLEMS, USAGE, CONFLICT, NOT_FOUND, DATABASE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

#: The meaning of each code. A test compares it with `docs/reference/cli.md`.
EXIT_CODES: dict[int, str] = {
    OK: "done",
    PROBLEMS: "`doctor` found problems, or a job did not get done",
    USAGE: "the command was not understood: unknown option, app, task or value",
    CONFLICT: "the job is not in a state that allows this, or another caller was first",
    NOT_FOUND: "no job, dead letter, key, message or operation has this id",
    DATABASE: "the database is missing, unreachable, read-only, full or of another version",
    INTERRUPTED: "interrupted from the keyboard",
}


class NothingFound(HoldfastError):
    """Nothing has this id."""


class ImportFailed(UsageError):
    """The user's own code raised while it was imported. *traceback* is empty if the message says enough."""

    def __init__(self, message: str, traceback: str) -> None:
        super().__init__(message)
        self.traceback = traceback


#: The first that fits decides.
_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (NothingFound, NOT_FOUND),
    (NotFound, NOT_FOUND),
    (UsageError, USAGE),
    (Conflict, CONFLICT),
    (LeaseLost, CONFLICT),
    (StoreError, DATABASE),
    (JobFailed, PROBLEMS),
    (HoldfastError, PROBLEMS),
    (KeyboardInterrupt, INTERRUPTED),
)


def exit_code(error: BaseException) -> int:
    return next((code for kind, code in _CODES if isinstance(error, kind)), PROBLEMS)


def report_error(error: BaseException) -> int:
    """Print an error in one line, and below it where the user's own code failed. Return the exit code."""
    line = " ".join(str(error).split())
    if line:
        print_error(f"holdfast: {line}")
    if isinstance(error, ImportFailed) and error.traceback:
        print_error(error.traceback)
    return exit_code(error)


def print_error(text: str) -> None:
    """Print *text* on stderr, without secrets. Control characters are escaped, because it may repeat arguments and foreign text."""
    from holdfast.printable import printable_lines
    from holdfast.redaction import redact_text

    print("\n".join(printable_lines(redact_text(text))), file=sys.stderr)
