"""Scenarios: a fleet of workers, the service that it calls, and trouble with a beginning and an end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Trouble(StrEnum):
    """What goes wrong."""

    HANGING = "hanging"  # calls are accepted and answered only when the trouble is over
    SLOW = "slow"  # every answer takes longer
    THROTTLING = "throttling"  # above a rate, calls are refused with a Retry-After
    BAD_WORKER = "bad worker"  # one worker cannot reach the service
    POISON = "poison"  # some jobs fail whenever they are tried
    FLAPPING = "flapping"  # the service alternates between refusing all calls and none
    WAITING = "waiting"  # jobs may not start before the trouble is over


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario.

    By default the service can answer 100 calls a second and gets 60, from workers that could make 600 at
    once.
    """

    name: str
    about: str
    trouble: Trouble
    begins: float  #: seconds from the start
    ends: float
    seconds: float  #: the length of the simulation
    amount: float = 0.0  #: by trouble: slowdown, rate, share of jobs or seconds of a flap
    arrivals: float = 60.0  #: jobs a second
    workers: int = 4
    slots: int = 150  #: of each worker
    servers: int = 10
    service_seconds: float = 0.1
    timeout_seconds: float = 5.0


OUTAGE = Scenario(
    name="outage",
    about="the service hangs for 300 s",
    trouble=Trouble.HANGING,
    begins=60,
    ends=360,
    seconds=1500,
)
BROWN_OUT = Scenario(
    name="brown-out",
    about="for 120 s the service has 40 % of its capacity",
    trouble=Trouble.SLOW,
    begins=60,
    ends=180,
    seconds=900,
    amount=2.5,
)
THROTTLING = Scenario(
    name="throttling",
    about="for 120 s the service answers 429 to what is above 40 calls a second",
    trouble=Trouble.THROTTLING,
    begins=60,
    ends=180,
    seconds=600,
    amount=40,
)
BAD_WORKER = Scenario(
    name="bad-worker",
    about="for 240 s one worker of four cannot reach the service",
    trouble=Trouble.BAD_WORKER,
    begins=60,
    ends=300,
    seconds=600,
)
POISON = Scenario(
    name="poison",
    about="for 240 s one job in a hundred makes the service fail, however often it is tried",
    trouble=Trouble.POISON,
    begins=60,
    ends=300,
    seconds=600,
    amount=0.01,
)
FLAPPING = Scenario(
    name="flapping",
    about="for 240 s the service refuses all calls for 20 s, takes them for 20 s, and so on",
    trouble=Trouble.FLAPPING,
    begins=60,
    ends=300,
    seconds=900,
    amount=20,
)
WINDOW = Scenario(
    name="window",
    about="nothing may run for 180 s, then everything that has gathered may",
    trouble=Trouble.WAITING,
    begins=0,
    ends=180,
    seconds=900,
)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (OUTAGE, BROWN_OUT, THROTTLING, BAD_WORKER, POISON, FLAPPING, WINDOW)
}
