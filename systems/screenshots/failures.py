"""The failure of a picture: its code, its message, and whether it is retried."""

from __future__ import annotations

from holdfast import Fatal, Retryable
from systems.screenshots.codes import CODES, Code, message


class ShotFailed(ValueError):
    """No picture could be taken. *detail* is a more exact message than the code's own.

    A `ValueError`, so that decoding an invalid `Shot` reports it as invalid, and not as an internal error.
    """

    def __init__(self, code: Code, detail: str = "") -> None:
        super().__init__(detail or message(code, final=True))
        self.code, self.detail = code, detail

    @property
    def again(self) -> bool:
        return CODES[self.code].again

    def line(self, *, final: bool) -> str:
        """Return the message: the *detail*, or else the code's own for this outcome."""
        return self.detail or message(self.code, final=final)


def rule(error: BaseException) -> Retryable | Fatal | None:
    """Classify a failed picture for a task's `rules`; None for any other error."""
    if not isinstance(error, ShotFailed):
        return None
    if error.again:
        return Retryable(error.line(final=False), code=error.code.value)
    return Fatal(error.line(final=True), code=error.code.value)
