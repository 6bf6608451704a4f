"""The heartbeat's own way to SQLite: through the writer, from its own thread."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.domain.job import Session


class SqliteHeartbeat:
    """*beat* waits for the commit and never for the event loop, which may be as busy as it likes."""

    def __init__(self, beat: Callable[[Session], bool]) -> None:
        self._beat = beat

    def beat(self, session: Session) -> bool:
        return self._beat(session)

    def close(self) -> None: ...
