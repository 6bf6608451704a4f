"""The model of a service: a line, some servers, and the troubles it can be in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any

from holdfast.jobs.verdict import Failure
from holdfast.simulate.scenarios import OUTAGE, Scenario, Trouble
from holdfast.simulate.service import BROKEN, REFUSED, THROTTLED, Service, ServiceRequest

CALM = replace(OUTAGE, trouble=Trouble.POISON, begins=10, ends=20, servers=1, service_seconds=1.0)


class Bench:
    """A service on a clock of its own, where every call takes exactly its mean."""

    def __init__(self, scenario: Scenario) -> None:
        self.now = 0.0
        self.answers: list[tuple[float, str, Failure | None]] = []
        self._agenda: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._names: dict[ServiceRequest, str] = {}
        self.service = Service[ServiceRequest](scenario, self._later, lambda: 0.5, self._answer)

    def ask(self, name: str, *, worker: int = 1, poison: bool = False) -> None:
        request = ServiceRequest(worker, poison)
        self._names[request] = name
        self.service.ask(request, self.now)

    def run(self, until: float) -> list[tuple[float, str, Failure | None]]:
        """What was answered by then, and not told before."""
        while self._agenda and self._agenda[0][0] <= until:
            self.now, _, act, value = heappop(self._agenda)
            act(value)
        self.now = until
        told, self.answers = self.answers, []
        return told

    def _later(self, seconds: float, act: Callable[[Any], None], value: Any) -> None:
        heappush(self._agenda, (self.now + seconds, len(self._names) * 1000 + len(self._agenda), act, value))

    def _answer(self, request: ServiceRequest, failure: Failure | None) -> None:
        self.answers.append((round(self.now, 3), self._names[request], failure))


def test_calls_are_answered_in_the_order_they_came() -> None:
    bench = Bench(CALM)
    for name in "abc":
        bench.ask(name)
    assert bench.run(5) == [(1, "a", None), (2, "b", None), (3, "c", None)]


def test_several_servers_work_at_once() -> None:
    bench = Bench(replace(CALM, servers=2))
    for name in "abc":
        bench.ask(name)
    assert [at for at, _, _ in bench.run(5)] == [1, 1, 2]


def test_a_service_that_hangs_takes_calls_and_works_them_off_afterwards() -> None:
    bench = Bench(replace(CALM, trouble=Trouble.HANGING))
    bench.run(12)
    bench.ask("a")
    bench.ask("b")
    assert bench.run(19.9) == []
    assert bench.run(30) == [(21, "a", None), (22, "b", None)]


def test_a_slow_service_takes_longer_while_it_lasts() -> None:
    bench = Bench(replace(CALM, trouble=Trouble.SLOW, amount=2.5))
    bench.run(12)
    bench.ask("a")
    assert bench.run(20) == [(14.5, "a", None)]
    bench.ask("b")
    assert bench.run(30) == [(21, "b", None)]


def test_above_its_rate_a_service_throttles() -> None:
    bench = Bench(replace(CALM, trouble=Trouble.THROTTLING, amount=1, servers=9))
    bench.run(12)
    bench.ask("a")
    bench.ask("b")
    assert bench.run(12.9) == [(12.005, "b", THROTTLED)]
    assert bench.run(13) == [(13, "a", None)]
    bench.ask("c")
    assert bench.run(14) == [(14, "c", None)]


def test_one_worker_alone_is_refused() -> None:
    bench = Bench(replace(CALM, trouble=Trouble.BAD_WORKER, servers=9))
    bench.run(12)
    bench.ask("bad", worker=0)
    bench.ask("good", worker=1)
    assert bench.run(19) == [(12.005, "bad", REFUSED), (13, "good", None)]
    bench.run(20)
    bench.ask("bad", worker=0)
    assert bench.run(21) == [(21, "bad", None)]


def test_a_flapping_service_refuses_and_serves_in_turn() -> None:
    bench = Bench(replace(CALM, trouble=Trouble.FLAPPING, amount=3.0))
    for at, refused in ((10, True), (12.9, True), (13, False), (15.9, False), (16, True), (20, False)):
        bench.run(at)
        bench.ask("x")
        assert [failure for _, _, failure in bench.run(at + 0.01)] == ([REFUSED] if refused else [])


def test_a_poison_job_is_worked_on_and_fails() -> None:
    bench = Bench(CALM)
    bench.ask("x", poison=True)
    assert bench.run(2) == [(1, "x", BROKEN)]
