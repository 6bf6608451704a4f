"""Everything that can happen next in a world: each step acts on the store and says what must have come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from holdfast.errors import Conflict
from holdfast.jobs.job import Lease, Settlement
from holdfast.jobs.moves import FINISHED, Kind, State
from holdfast.jobs.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict
from tests.exhaustive.world import JOB, LANE, TICK, Mind, World, at_once
from tests.simulation.ledger import demand, expected_answer

_BOOM = Failure("BOOM", "BOOM happened")


class Step(NamedTuple):
    name: str  #: as the story tells it
    take: Callable[[World], str]  #: what came of it, in one word


def steps(world: World) -> Iterator[Step]:
    """All that may happen now."""
    for place, mind in enumerate(world.minds.workers):
        yield from _of_worker(world, place, mind)
    for place, read in enumerate(world.minds.lists):
        reaper = f"reaper {place + 1}"
        yield Step(f"{reaper} looks for lost leases", partial(_look, place=place))
        if read:
            yield Step(f"{reaper} reclaims what it had read", partial(_reclaim, place=place))
    if world.minds.clicks:
        yield Step("a person presses Retry", _retry)
    if world.minds.cancels:
        yield Step("a person cancels", _cancel)
    if world.passed and world.job.state not in FINISHED:
        yield Step("the deadline duty runs", _time_out)
    yield Step(f"{TICK:.0f} s pass", _tick)


def _of_worker(world: World, place: int, mind: Mind) -> Iterator[Step]:
    who, part = f"worker {place + 1}", partial(partial, place=place)
    if mind.lease is None:
        yield Step(f"{who} claims", part(_claim))
    elif mind.unsure is not None:
        yield Step(f"{who} sends it again", part(_send_again))
    else:
        yield Step(f"{who} completes", part(_settle, word="complete"))
        yield Step(f"{who} completes; the answer is lost", part(_settle, word="complete", answered=False))
        yield Step(f"{who} fails", part(_settle, word="fail"))
        if world.job.holds(mind.lease):
            yield Step(f"{who} releases", part(_settle, word="release"))
            if world.minds.crashes:
                yield Step(f"{who} crashes and starts again", part(_crash))
    if world.left(mind.session) < mind.session.ttl.total_seconds():
        yield Step(f"{who} says that it lives", part(_extend))


# -- workers ----------------------------------------------------------------------------------------------------------------
def _claim(world: World, place: int) -> str:
    mind, due = world.minds.workers[place], world.is_due
    lives = world.left(mind.session) > 0
    at_once(world.store.promote(10))
    claimed = at_once(world.store.claim(mind.session, [LANE], 1))
    demand(bool(claimed) <= lives, "a dead session was given work (E4)")
    demand(bool(claimed) <= due, "a job was claimed that was not due (E2)")
    demand(bool(claimed) >= (lives and due), "due, and nobody was given it (E5)")
    if not claimed:
        if not lives:  # as a worker does that has lost its session
            world.set_mind(place, Mind(world.open_session()))
        return "nothing"
    world.set_mind(place, mind._replace(lease=claimed[0].lease))
    return "claimed"


def _verdict(world: World, lease: Lease, word: str) -> Verdict:
    """What a worker would say: never a retry of the last attempt, the policy sees to that."""
    match word:
        case "complete":
            return Complete(str(lease.epoch))
        case "release":
            return Release()
    attempt = world.job.attempts.get(lease.epoch)
    number = world.life.attempt if attempt is None else attempt.attempt
    if number >= world.scenario.max_attempts:
        return Bury(_BOOM)
    return RetryAfter(timedelta(seconds=world.scenario.delay), _BOOM)


def _settle(world: World, place: int, word: str, answered: bool = True) -> str:
    mind = world.minds.workers[place]
    assert mind.lease is not None
    verdict = _verdict(world, mind.lease, word)
    answer = _send(world, mind.lease, verdict)
    world.set_mind(place, Mind(mind.session) if answered else mind._replace(unsure=verdict))
    return answer


def _send_again(world: World, place: int) -> str:
    mind = world.minds.workers[place]
    assert mind.lease is not None
    assert mind.unsure is not None
    demand(not world.job.holds(mind.lease), "it was settled, and the lease is still there (E6)")
    answer = _send(world, mind.lease, mind.unsure)
    world.set_mind(place, Mind(mind.session))
    return f"again {answer}"


def _send(world: World, lease: Lease, verdict: Verdict) -> str:
    expected = expected_answer(world.life, lease.epoch, passed=world.passed)
    [answer] = at_once(world.store.settle([Settlement(lease, verdict)]))
    demand(answer is expected, f"answered {answer}, but it must be {expected} (E4)")
    return str(answer)


def _extend(world: World, place: int) -> str:
    session = world.minds.workers[place].session
    lives = world.left(session) > 0
    answer = world.store.heartbeat().beat(session)
    demand(answer is lives, "a dead session came back" if answer else "a living session was ended")
    return "extended" if answer else "refused"


def _crash(world: World, place: int) -> str:
    world.minds = world.minds._replace(crashes=world.minds.crashes - 1)
    world.set_mind(place, Mind(world.open_session()))
    return "crashed"


# -- duties -----------------------------------------------------------------------------------------------------------------
def _look(world: World, place: int) -> str:
    found = at_once(world.store.expired(10))
    world.set_list(place, tuple(world.engine.recovery._judge_expired(lost) for lost in found))
    return "found" if found else "nothing"


def _reclaim(world: World, place: int) -> str:
    read = world.minds.lists[place]
    lost = world.is_lost and world.job.holds(read[0].lease)
    done = at_once(world.store.reclaim(read))
    demand(done <= lost, "a lease was reclaimed that had not run out, or was not current (E30)")
    demand(done >= lost, "a lost lease was not reclaimed (E30)")
    world.set_list(place, ())
    return "reclaimed" if done else "refused"


def _time_out(world: World) -> str:
    demand(at_once(world.store.time_out(10)) == [JOB], "a passed deadline was not found (E34)")
    return "timed_out"


def _tick(world: World) -> str:
    world.clock.seconds += TICK
    return "passed"


# -- people -----------------------------------------------------------------------------------------------------------------
def _retry(world: World) -> str:
    state = world.job.state
    waits = state is State.QUEUED and not world.is_due
    allowed = state in (State.FAILED, State.CANCELLED) or waits or world.is_lost
    world.minds = world.minds._replace(clicks=world.minds.clicks - 1)
    try:
        at_once(world.store.retry(JOB, "ann", kind=Kind.manual_retry))
    except Conflict:
        demand(not allowed, f"a retry of a {state} job was refused (E33)")
        return "conflict"
    demand(allowed, f"a retry of a {state} job went through (E33)")
    demand(world.is_due, "it was retried, and is not due (E33)")
    return "retried"


def _cancel(world: World) -> str:
    state = world.job.state
    world.minds = world.minds._replace(cancels=world.minds.cancels - 1)
    try:
        at_once(world.store.cancel(JOB, "ben", ""))
    except Conflict:
        demand(state in FINISHED, f"a cancel of a {state} job was refused (E29)")
        return "conflict"
    demand(state not in FINISHED, f"a {state} job was cancelled (E29)")
    return "cancelled"
