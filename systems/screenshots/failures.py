"""What a failed picture is: a code, one line, and whether it is tried again."""

from __future__ import annotations

from holdfast import Fatal, Retryable
from systems.screenshots.codes import CODES, Code, message


class ShotFailed(ValueError):
    """No picture came of it. *detail* takes the place of the code's own line where it can be said more exactly.

    A `ValueError`, so that decoding an invalid `Shot` reports it as invalid, and not as an internal error.
    """

    def __init__(self, code: Code, detail: str = "") -> None:
        super().__init__(detail or message(code, final=True))
        self.code, self.detail = code, detail

    @property
    def again(self) -> bool:
        return CODES[self.code].again

    def line(self, *, final: bool) -> str:
        return self.detail or message(self.code, final=final)


def rule(error: BaseException) -> Retryable | Fatal | None:
    """For a task's `rules`: what becomes of a job whose picture failed."""
    if not isinstance(error, ShotFailed):
        return None
    if error.again:
        return Retryable(error.line(final=False), code=error.code.value)
    return Fatal(error.line(final=True), code=error.code.value)
