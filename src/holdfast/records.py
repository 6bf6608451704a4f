"""What an app returns and what hooks are called with, for annotations: `from holdfast.records import DeadLetter`."""

from holdfast.engine.ports import MoveNotice, Transaction
from holdfast.health.judgement import Health, Thresholds
from holdfast.jobs.job import Artifact, Attempt, DeadLetter, Event, LateResult, StuckJob, WorkerRow
from holdfast.jobs.moves import MOVES
from holdfast.statistics.reading import BreakdownRow, Overview, Percentiles, StatisticLine, StatisticSeries

__all__ = [
    "MOVES",
    "Artifact",
    "Attempt",
    "BreakdownRow",
    "DeadLetter",
    "Event",
    "Health",
    "LateResult",
    "MoveNotice",
    "Overview",
    "Percentiles",
    "StatisticLine",
    "StatisticSeries",
    "StuckJob",
    "Thresholds",
    "Transaction",
    "WorkerRow",
]
