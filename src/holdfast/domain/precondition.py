"""On what terms a person's move is made: only on a job that is still as it was read, and once however often it is sent. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from holdfast.domain.moves import State

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class Version(NamedTuple):
    """Of a job: another after every move. Each part is what some move alone changes: a retry of a waiting job only *retries*,
    and *updated* stays the same where two moves meet in one moment."""

    state: State
    generation: int
    epoch: int
    retries: int  #: by people
    updated: int  #: microseconds since 1970

    @classmethod
    def of(cls, state: str, generation: int, epoch: int, retries: int, updated_at: datetime) -> Version:
        micros = (updated_at - _BEGINNING) // timedelta(microseconds=1)
        return cls(State(state), generation, epoch, retries, micros)

    def __str__(self) -> str:
        return "-".join(map(str, self))

    @classmethod
    def read(cls, text: str) -> Version | None:
        """What `str` wrote; None for anything else."""
        state, *parts = text.split("-")
        if state not in tuple(State) or len(parts) != len(cls._fields) - 1 or not all(map(_is_number, parts)):
            return None
        return cls(State(state), *map(int, parts))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Precondition:
    """*versions*: the job must be one of these when the move is made, else `Changed`; None: whatever it is.
    *token*: names the call. One that was carried out is answered again and not done twice (rule 3 of docs/explanation/reliability.md)."""

    versions: frozenset[Version] | None = None
    token: str | None = None

    def admits(self, version: Version) -> bool:
        return self.versions is None or version in self.versions


UNCONDITIONAL = Precondition()
