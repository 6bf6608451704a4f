"""An event loop of our own: time is virtual, and which process goes on next is drawn from the seed.

Every callback belongs to an actor, by the context it was made in. Within an actor the order is asyncio's own, as it would be
in its process; between actors anything can happen. An actor that is frozen does not run until it is thawed, and one that was
killed never does: no `finally` of it is run, as after SIGKILL.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from itertools import count
from random import Random
from typing import Any

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]


class Actor:
    """A process, a person or the weather. *frozen_until* is infinite after a kill."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.frozen_until = 0.0
        self.waiting: deque[Any] = deque()  #: its callbacks, in their order

    def __repr__(self) -> str:
        return self.name


NOBODY = Actor("nobody")
_actor: ContextVar[Actor] = ContextVar("actor", default=NOBODY)


class NothingLeft(AssertionError):
    """Nobody is scheduled: everybody waits for somebody else."""


#: Sets of tasks and futures are walked in the order of their hashes: by address they would differ from run to run.
_numbers = count(1)


class SimTask(asyncio.Task):  # type: ignore[type-arg]
    number: int

    def __hash__(self) -> int:
        try:
            return self.number
        except AttributeError:
            self.number = next(_numbers)
            return self.number


class SimFuture(asyncio.Future):  # type: ignore[type-arg]
    number: int

    __hash__ = SimTask.__hash__


class SimLoop(asyncio.BaseEventLoop):
    _ready: deque[Any]
    _scheduled: list[Any]  # timers, the next one first

    def __init__(self, chance: Random) -> None:
        global _numbers
        super().__init__()
        _numbers = count(1)
        self._chance, self._now = chance, 0.0
        self._actors: dict[Actor, None] = {}  #: those with something to run
        self.steps = 0
        #: Nobody else holds the tasks of a process that was killed; collected, they would run their `finally` after all.
        self._kept: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> SimTask:
        task = SimTask(coroutine, loop=loop, **options)
        self._kept.append(task)
        return task

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def time(self) -> float:
        return self._now

    def _write_to_self(self) -> None: ...

    def unfinished(self) -> list[asyncio.Task[Any]]:
        """Every task that has not come to its end, but for the one that asks."""
        me = asyncio.current_task(self)
        return [task for task in self._kept if task is not me and not task.done()]

    # -- actors -----------------------------------------------------------------------------------------------------
    def start(self, actor: Actor, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run *work* as this actor, and with it all that comes of it."""
        context = copy_context()
        context.run(_actor.set, actor)
        return self.create_task(work, context=context)

    def freeze(self, actor: Actor, seconds: float) -> None:
        actor.frozen_until = self._now + seconds
        if seconds != float("inf"):
            self.call_later(seconds, lambda: None)  # so that time goes on to where it is thawed

    def thaw_all(self, actors: list[Actor]) -> None:
        for actor in actors:
            actor.frozen_until = 0.0

    # -- one step -----------------------------------------------------------------------------------------------------
    def _run_once(self) -> None:
        """Run one callback of one actor; when nobody can run, time moves on to whoever is next."""
        self._sort_ready()
        now = self._now
        able = [actor for actor in self._actors if actor.frozen_until <= now]
        while not able:
            self._move_on()
            now = self._now
            able = [actor for actor in self._actors if actor.frozen_until <= now]
        actor = able[0] if len(able) == 1 else able[int(self._chance.random() * len(able))]
        handle = actor.waiting.popleft()
        if not actor.waiting:
            del self._actors[actor]
        if not handle._cancelled:
            self.steps += 1
            handle._run()

    def _sort_ready(self) -> None:
        """To each actor what is its own. This is run at every step: so it is written out."""
        ready, scheduled, actors = self._ready, self._scheduled, self._actors
        while ready:
            handle = ready.popleft()
            if not handle._cancelled:
                actor = handle._context.get(_actor, NOBODY)
                actor.waiting.append(handle)
                actors[actor] = None
        while scheduled and scheduled[0]._when <= self._now:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            if not timer._cancelled:
                actor = timer._context.get(_actor, NOBODY)
                actor.waiting.append(timer)
                actors[actor] = None

    def _move_on(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:
            heapq.heappop(self._scheduled)._scheduled = False
        if not self._scheduled:
            raise NothingLeft("nobody will ever run again")
        self._now = max(self._now, self._scheduled[0]._when)
        self._sort_ready()


def current_actor() -> Actor:
    return _actor.get()


# -- threads ----------------------------------------------------------------------------------------------------------------
class Nap:
    """Stands in for a `threading.Event` of a thread that runs on the loop: waiting lets the others go on."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop, self._set = loop, False
        self._timer: asyncio.TimerHandle | None = None
        self._sleeper: greenlet | None = None

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float) -> bool:
        if not self._set:
            self._sleeper = getcurrent()
            self._timer = self._loop.call_later(timeout, self._sleeper.switch)
            assert self._sleeper.parent is not None
            self._sleeper.parent.switch()
        return self._set

    def set(self) -> None:
        self._set = True

    def wake(self) -> None:
        """Let the sleeper go on at once, if it sleeps here."""
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None and not sleeper.dead and self._timer is not None:
            self._timer.cancel()
            sleeper.switch()


class SimThreads:
    """The port `Threads`, without any: each is a greenlet of the loop, so that its steps are drawn from the seed too."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def start(self, name: str, run: Callable[[], None]) -> Callable[[float | None], None]:
        heartbeat: Any = getattr(run, "__self__", None)
        assert hasattr(heartbeat, "_stop"), f"{name} is not a thread that this simulation knows how to run"
        nap = heartbeat._stop = Nap(self._loop)
        thread = greenlet(run)
        thread.gr_context = copy_context()
        self._loop.call_soon(thread.switch)

        def join(timeout: float | None) -> None:
            nap.wake()

        return join

    def sleep(self, seconds: float) -> None:
        """Of such a thread."""
        me = getcurrent()
        assert me.parent is not None
        self._loop.call_later(seconds, me.switch)
        me.parent.switch()
