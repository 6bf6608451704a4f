"""One seed, one story: set the cluster up, trouble it, let it recover, and look whether every promise was kept."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from tests.simulation.diary import short
from tests.simulation.ledger import Broken
from tests.simulation.loop import Actor, SimLoop
from tests.simulation.places import InMemory, Place
from tests.simulation.world import TROUBLES, World, people

#: The end of a story is what matters.
LINES = 60
FAULTS = ("refused", "lost", "doubled", "delayed")
#: What strikes at a moment of its own, and how often beside the others.
BLOWS = {"kill": 4, "stall": 4, "stop": 2, "away": 2, "gateway": 3, "jump": 1}


@dataclass(frozen=True)
class Size:
    """How large the cluster is. Without a size the seed decides."""

    processes: int
    jobs: int


@dataclass
class Outcome:
    seed: int
    store: str
    log: bytes = b""
    jobs: int = 0
    seconds: float = 0.0  #: of virtual time
    steps: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)  #: what happened, for people
    broken: str | None = None

    def story(self) -> str:
        """What a person needs to follow it: what broke, how to play it again, and what came before."""
        how = f"python -m tests.simulation --store {self.store} {self.seed} --story"
        end = f"broken: {short(self.broken)}" if self.broken else "every promise was kept"
        return "\n".join([f"seed {self.seed}, replay it: {how}", *self.told[-LINES:], end])


def simulate(seed: int, place: Place | None = None, size: Size | None = None) -> Outcome:
    """Play one seed to its end. What was broken is in the outcome; nothing is raised for it."""
    place = place or InMemory()
    outcome, chance = Outcome(seed, place.name), Random(seed)
    loop = SimLoop(chance)
    with quiet() as complaints:
        try:
            loop.run_until_complete(_play(loop, chance, place, outcome, size))
        finally:
            loop.close()
            place.close()
    if complaints and outcome.broken is None:
        outcome.broken = f"a bug of ours was logged: {complaints[0]}"
    return outcome


async def _play(loop: SimLoop, chance: Random, place: Place, outcome: Outcome, size: Size | None) -> None:
    world = World(loop, chance, place, outcome.counts)
    auditor = world.auditor
    for _ in range(size.processes if size else chance.choice([1, 2, 3, 4])):
        world.start_process()
    client = loop.start(Actor("client"), world.enqueue(size.jobs if size else chance.randint(6, 20)))
    people(world, chance.choice([0, 1, 2]))
    trouble = loop.start(Actor("weather"), _trouble(world))
    try:
        await _first(trouble, auditor.over)
        world.calm = True
        if not auditor.over.is_set():
            await _first(client, auditor.over)
            await world.wait_for_the_end()
            await auditor.close_the_books()
    except AssertionError as error:
        auditor.fail(error)
    finally:
        outcome.log, outcome.jobs = auditor.log(), len(auditor.lives)
        outcome.seconds, outcome.steps = loop.time(), loop.steps
        if auditor.broken is not None:
            outcome.broken = str(auditor.broken) or type(auditor.broken).__name__
        outcome.told = world.diary.story(outcome.broken or "")
        counts = outcome.counts.copy()  # what the dead still try does not count
        await world.bury_the_dead()
        outcome.counts = counts


async def _first(task: asyncio.Task[None], over: asyncio.Event) -> None:
    """Until the task is done, or all is over."""
    waiting = asyncio.ensure_future(over.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        task.result()


async def _trouble(world: World) -> None:
    """The troubles of this seed: how bad the network is, and blows at random moments; then all is well again."""
    chance, weather = world.chance, world.weather
    for fault in FAULTS:
        setattr(weather, fault, chance.choice([0.0, 0.02, 0.1]))
    weather.deaf = chance.choice([0.0, 0.1, 1.0])  # and stays so: hints are never needed
    weather.slowest = chance.choice([0.05, 0.5, 3.0])
    blows = chance.choices(list(BLOWS), k=chance.randint(2, 8), weights=list(BLOWS.values()))
    for blow in blows:
        await asyncio.sleep(chance.random() * TROUBLES / len(blows) * 2)
        _strike(world, blow)
    await asyncio.sleep(1)
    for fault in FAULTS:
        setattr(weather, fault, 0.0)
    weather.away = world.work.gateway.down = False
    if not world.processes:
        world.start_process()


def _strike(world: World, blow: str) -> None:
    chance, loop = world.chance, world.loop
    process = chance.choice(world.processes) if world.processes else None
    lease = world.settings.lease.total_seconds()
    match blow:
        case "kill" if process is not None:
            world.kill(process)
            loop.call_later(chance.random() * 8, world.start_process)
        case "stall" if process is not None:  # SIGSTOP, and SIGCONT when its leases may be another's
            seconds = chance.random() * 2.5 * lease
            loop.freeze(process.actor, seconds)
            world.diary.note(f"{process.actor} is frozen for {seconds:.2f} s; the lease is {lease:g} s")
        case "stop" if process is not None and process.worker is not None:  # SIGTERM
            process.worker.stop()
            world.diary.note(f"{process.actor} is told to stop")
        case "away":
            world.weather.away = True
            seconds = chance.random() * 1.5 * lease
            loop.call_later(seconds, lambda: setattr(world.weather, "away", False))
            world.diary.note(f"the store is away for {seconds:.2f} s")
        case "gateway":
            world.work.gateway.down = not world.work.gateway.down
            world.diary.note(f"the gateway {'goes down' if world.work.gateway.down else 'comes back'}")
        case "jump":  # the clock of the machine that the store runs on is set
            ahead = chance.choice([30.0, 3600.0])
            world.store_clock.skew += ahead
            world.diary.note(f"the clock of the store's machine is set {ahead:g} s ahead")
        case _:
            return  # nobody was there to be struck
    world.counts[f"blow: {blow}"] += 1


class _Ears(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        told = self.format(record) if record.exc_info else record.getMessage()
        self.heard.append(told)


@contextmanager
def quiet() -> Iterator[list[str]]:
    """No line is said, and what the engine takes for a bug of its own is kept: that is a broken promise too."""
    logger, ears = logging.getLogger("holdfast"), _Ears()
    before = logger.level, logger.propagate
    logger.addHandler(ears)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield ears.heard
    finally:
        logger.removeHandler(ears)
        logger.level, logger.propagate = before


def demand_kept(outcome: Outcome) -> None:
    if outcome.broken is not None:
        raise Broken(outcome.story())
