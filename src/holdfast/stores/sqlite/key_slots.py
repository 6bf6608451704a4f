"""Keys: how many more jobs of each may run. A slot is taken while its job is processing, so nothing has to be freed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from holdfast.stores.encoding import to_json
from holdfast.stores.sqlite.move import Move


class KeySlots:
    """What one claim knows of keys, and takes of them."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()
        self._slots: dict[int, int] = {}  #: of the jobs whose key has more than one
        self.full: set[str] = set()  #: of these nobody could be taken just now

    def look(self, move: Move, keyed: Mapping[int, str]) -> None:
        """Learn what there is to know of these jobs' keys."""
        self._running.update(_running(move, set(keyed.values()) - self._running.keys()))
        rows = move.connection.execute(
            "SELECT id, key_slots FROM holdfast_job WHERE id IN (SELECT value FROM json_each(?)) AND key_slots IS NOT NULL",
            (to_json(list(keyed)),),
        )
        self._slots.update(rows.fetchall())

    def take(self, number: int, key: str) -> bool:
        """A slot for this job, if its key has one left."""
        if self._running[key] >= self._slots.get(number, 1):
            self.full.add(key)
            return False
        self._running[key] += 1
        return True


def _running(move: Move, keys: Collection[str]) -> dict[str, int]:
    counts = dict.fromkeys(keys, 0)
    rows = move.connection.execute(
        "SELECT key, count(*) FROM holdfast_job WHERE phase = 2 AND key IN (SELECT value FROM json_each(?)) GROUP BY key",
        (to_json(list(keys)),),
    )
    return counts | dict(rows.fetchall())
