"""Keep the statistics: fold the event log, take the samples of each minute, purge what was kept long enough."""

from __future__ import annotations

from holdfast.engine.engine import Engine
from holdfast.engine.ports import FoldsEvents
from holdfast.statistics.folding import fold
from holdfast.statistics.metrics import STEPS
from holdfast.statistics.sampling import sample
from holdfast.statistics.table import purge

#: Seconds between two looks at the event log, which is how late the statistics are.
STATISTICS_EVERY = 1.0
#: The most transactions of one run. Then samples and other tasks have their turn.
MOST_FOLDS = 20


class StatisticsUpkeep:
    """The maintenance task. Any number of processes may run it; each event and each minute counts once."""

    def __init__(self, engine: Engine) -> None:
        self._store = engine.store

    async def run(self) -> None:
        if not isinstance(self._store.queries, FoldsEvents):
            return
        for _ in range(MOST_FOLDS):
            if not await fold(self._store):
                break
        if await sample(self._store):
            await self._purge()

    async def _purge(self) -> None:
        """Delete old figures, once a minute in one process: the one that has taken the samples."""
        now = await self._store.now()
        for step in STEPS:
            await purge(self._store, step, now)
