"""The results of a simulation: a recorder that runs along, and the figures made from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from holdfast.simulate.policies import SimulatedPolicy
from holdfast.simulate.scenarios import Scenario

BIN_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The results of one policy in one scenario."""

    scenario: str
    policy: str
    about: str
    arrived: int  #: jobs, without the poison ones, which cannot succeed
    done: int
    gave_up: int  #: dead letters, with the poison jobs
    calls: int
    opened: int  #: how often the shared breaker opened
    put_off: int  #: retries that the budget put off
    burnt: int  #: attempts that counted although no call was made
    #: seconds from the end of the trouble until the backlog was gone; None if it never was
    drained: float | None
    bin_seconds: float
    done_per_bin: tuple[int, ...]
    calls_per_bin: tuple[int, ...]

    @property
    def share_done(self) -> float:
        return self.done / self.arrived if self.arrived else 0.0

    @property
    def calls_per_job(self) -> float | None:
        return self.calls / self.done if self.done else None

    def view(self) -> dict[str, Any]:
        """Return all figures by name, for JSON."""
        return asdict(self) | {"share_done": self.share_done, "calls_per_job": self.calls_per_job}


class Recorder:
    """Counts what happens during a simulation, in bins of `BIN_SECONDS`."""

    def __init__(self, seconds: float) -> None:
        self._bins = max(1, int(seconds / BIN_SECONDS))
        self._arrived = [0] * self._bins
        self._called = [0] * self._bins
        self._done = [0] * self._bins
        self._poison = 0
        self._gave_up = [0] * self._bins
        self._openings: list[float] = []
        self._burnt = 0
        self.put_off = 0

    def _bin(self, now: float) -> int:
        return min(self._bins - 1, int(now / BIN_SECONDS))

    def arrived(self, now: float, *, poison: bool) -> None:
        if not poison:
            self._arrived[self._bin(now)] += 1

    def called(self, now: float) -> None:
        self._called[self._bin(now)] += 1

    def done(self, now: float, burnt: int) -> None:
        """Count a completed job, which has *burnt* attempts without a call."""
        self._done[self._bin(now)] += 1
        self._burnt += burnt

    def gave_up(self, now: float, burnt: int, *, poison: bool) -> None:
        """Count a job that became a dead letter."""
        if poison:
            self._poison += 1
        else:
            self._gave_up[self._bin(now)] += 1
        self._burnt += burnt

    def opened(self, now: float) -> None:
        self._openings.append(now)

    def figures(self, scenario: Scenario, policy: SimulatedPolicy) -> Figures:
        """Return the results of the simulation."""
        return Figures(
            scenario=scenario.name,
            policy=policy.name,
            about=policy.about,
            arrived=sum(self._arrived),
            done=sum(self._done),
            gave_up=sum(self._gave_up) + self._poison,
            calls=sum(self._called),
            opened=len(self._openings),
            put_off=self.put_off,
            burnt=self._burnt,
            drained=self._drained(scenario),
            bin_seconds=BIN_SECONDS,
            done_per_bin=tuple(self._done),
            calls_per_bin=tuple(self._called),
        )

    def _drained(self, scenario: Scenario) -> float | None:
        """Return the seconds from the end of the trouble until the backlog is under five seconds of jobs."""
        waiting = 0
        for place in range(self._bins):
            waiting += self._arrived[place] - self._done[place] - self._gave_up[place]
            end = (place + 1) * BIN_SECONDS
            if end >= scenario.ends and waiting <= 5 * scenario.arrivals:
                return max(0.0, end - scenario.ends)
        return None
