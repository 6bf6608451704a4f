"""Preconditions of manual actions: an expected version of the job and an idempotency token. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from holdfast.jobs.moves import State

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Version(NamedTuple):
    """The version of a job, which changes with every move.

    Each part is needed, because some move changes only that part: a retry of a waiting job changes only
    *retries*, and *updated* stays the same when two moves happen in the same microsecond.
    """

    state: State
    generation: int
    epoch: int
    retries: int  #: manual ones
    updated: int  #: microseconds since 1970

    @classmethod
    def of(cls, state: str, generation: int, epoch: int, retries: int, updated_at: datetime) -> Version:
        """Return the version of a job with these columns."""
        micros = (updated_at - _EPOCH) // timedelta(microseconds=1)
        return cls(State(state), generation, epoch, retries, micros)

    def __str__(self) -> str:
        return "-".join(map(str, self))

    @classmethod
    def read(cls, text: str) -> Version | None:
        """Parse the text that `str()` makes of a version; return None for any other text."""
        state, *parts = text.split("-")
        if state not in tuple(State) or len(parts) != len(cls._fields) - 1 or not all(map(_is_number, parts)):
            return None
        return cls(State(state), *map(int, parts))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Precondition:
    """What must be true for a manual action to be carried out.

    Attributes:
        versions: The job must have one of these versions, or the action raises `Changed`. None allows any.
        token: Identifies the call. A repeated call with the same token returns the first answer and changes
            nothing (rule 3 of docs/explanation/reliability.md).
    """

    versions: frozenset[Version] | None = None
    token: str | None = None

    def admits(self, version: Version) -> bool:
        """Return whether a job of this *version* may be changed."""
        return self.versions is None or version in self.versions


UNCONDITIONAL = Precondition()
