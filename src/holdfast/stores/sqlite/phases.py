"""Where a job is, as its row says it: `queued` in two, because a job that is due later is not in line yet."""

from __future__ import annotations

from holdfast.domain.moves import State

IN_LINE, DEFERRED, PROCESSING, COMPLETE, FAILED, CANCELLED = range(6)

#: phase → state
STATES = (State.QUEUED, State.QUEUED, State.PROCESSING, State.COMPLETE, State.FAILED, State.CANCELLED)
