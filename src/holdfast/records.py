"""What an app returns and what hooks are called with, for annotations: `from holdfast.records import DeadLetter`."""

from holdfast.engine.ports import MoveNotice, Transaction
from holdfast.health.judgement import Health, Thresholds
from holdfast.jobs.job import Artifact, Attempt, DeadLetter, Event, LateResult, StuckJob, WorkerRow
from holdfast.jobs.moves import MOVES

__all__ = [
    "MOVES",
    "Artifact",
    "Attempt",
    "DeadLetter",
    "Event",
    "Health",
    "LateResult",
    "MoveNotice",
    "StuckJob",
    "Thresholds",
    "Transaction",
    "WorkerRow",
]
