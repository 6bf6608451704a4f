"""The simulated service: it takes calls in order and finishes them even if their callers have given up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Generic, TypeVar

from holdfast.jobs.verdict import Failure
from holdfast.simulate.scenarios import Scenario, Trouble

REFUSED = Failure.of("NETWORK")
BROKEN = replace(Failure.of("HTTP_5XX"), gateway_status=500)
THROTTLED = replace(Failure.of("THROTTLED"), gateway_status=429, retry_after=timedelta(seconds=1))
#: A refusal costs the caller a round trip.
REFUSAL_SECONDS = 0.005


class ServiceRequest:
    """A call to the service, which does not know whether the caller still waits for the answer."""

    __slots__ = ("poison", "worker_number")

    def __init__(self, worker_number: int, poison: bool) -> None:
        self.worker_number, self.poison = worker_number, poison


R = TypeVar("R", bound=ServiceRequest)
#: Calls a function with a value after a number of seconds.
Later = Callable[[float, Callable[[Any], None], Any], None]


class Service(Generic[R]):
    """A service with a fixed number of servers and the trouble of a scenario.

    It calls *answer* once for each request. *chance* returns numbers in [0, 1).
    """

    def __init__(
        self,
        scenario: Scenario,
        later: Later,
        chance: Callable[[], float],
        answer: Callable[[R, Failure | None], None],
    ) -> None:
        self.scenario = scenario
        self._later, self._chance, self._answer = later, chance, answer
        self._queue: deque[R] = deque()
        self._busy = 0
        self._hanging = False
        self._second, self._taken = -1, 0
        if scenario.trouble is Trouble.HANGING:
            later(scenario.begins, self._hang, True)
            later(scenario.ends, self._hang, False)

    def ask(self, request: R, now: float) -> None:
        """Accept *request*: refuse it, queue it or serve it."""
        refusal = self._refusal(request, now)
        if refusal is not None:
            self._later(REFUSAL_SECONDS, self._refuse, (request, refusal))
        elif self._hanging or self._busy >= self.scenario.servers:
            self._queue.append(request)
        else:
            self._serve(request, now)

    def _refusal(self, request: ServiceRequest, now: float) -> Failure | None:
        scenario = self.scenario
        if not scenario.begins <= now < scenario.ends:
            return None
        match scenario.trouble:
            case Trouble.BAD_WORKER if request.worker_number == 0:
                return REFUSED
            case Trouble.FLAPPING if int((now - scenario.begins) // scenario.amount) % 2 == 0:
                return REFUSED
            case Trouble.THROTTLING:
                if int(now) != self._second:
                    self._second, self._taken = int(now), 0
                self._taken += 1
                return THROTTLED if self._taken > scenario.amount else None
        return None

    def _serve(self, request: R, now: float) -> None:
        self._busy += 1
        scenario = self.scenario
        seconds = scenario.service_seconds * (0.5 + self._chance())
        if scenario.trouble is Trouble.SLOW and scenario.begins <= now < scenario.ends:
            seconds *= scenario.amount
        self._later(seconds, self._done, (request, now + seconds))

    def _done(self, served: tuple[R, float]) -> None:
        request, now = served
        self._busy -= 1
        # Before the answer: its caller may call again at once and must not overtake the queue.
        self._serve_next(now)
        self._answer(request, BROKEN if request.poison else None)

    def _refuse(self, refused: tuple[R, Failure]) -> None:
        self._answer(*refused)

    def _serve_next(self, now: float) -> None:
        while self._queue and not self._hanging and self._busy < self.scenario.servers:
            self._serve(self._queue.popleft(), now)

    def _hang(self, hanging: bool) -> None:
        self._hanging = hanging
        if not hanging:
            self._serve_next(self.scenario.ends)
