"""Every pair of verbs on one job, in every order of their statements, on two real connections (E4, E5, E51).

Whatever the order, what both were told and what became of the job must be as if one had come after the other.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from devservices.postgres import Postgres
from holdfast.errors import Conflict
from holdfast.jobs.job import JobId, Session
from holdfast.stores.postgres import PostgresStore
from holdfast.wiring import SystemClock
from tests.databases import new_database
from tests.interleavings.gates import Director, Side, open_gated
from tests.interleavings.scenes import PERSONS, SCENES, call, pairs, set_stage
from tests.simulation.ledger import Life, check_attempts, check_row, step

pytestmark = pytest.mark.timeout(180)
#: The first side as far as it goes, then the second; and the other way round.
FORWARD, BACKWARD = [0] * 40, [1] * 40
#: Verbs of a person are up to ten statements long: all their orders would be hundreds of thousands. Of those in which a call
#: is interrupted up to so often, none is left out; between short verbs that is all there are.
INTERRUPTIONS = 2


class Job(NamedTuple):
    """What became of one job."""

    state: str
    generation: int
    attempt: int
    crashes: int
    kinds: tuple[str, ...]


class End(NamedTuple):
    """The answers of both calls, and what became of each job."""

    answers: tuple[Any, ...]
    jobs: tuple[Job, ...]


class Theatre:
    """*plain* sets the stage and looks at what came of it; *sessions* are two workers that wait for work."""

    def __init__(
        self,
        stores: tuple[PostgresStore, PostgresStore],
        plain: PostgresStore,
        director: Director,
        sessions: list[Session],
    ) -> None:
        self._stores, self._plain, self._director, self._sessions = stores, plain, director, sessions
        self.played = 0

    async def play(
        self, scene: str, verbs: tuple[str, str], order: list[int]
    ) -> tuple[End, list[tuple[int, list[int]]]]:
        stage = await set_stage(self._plain, scene)
        sides = list(zip(self._stores, verbs, self._sessions, strict=True))
        calls = tuple(call(store, verb, stage, other) for store, verb, other in sides)
        answers, trace = await self._director.play((calls[0], calls[1]), order)
        self.played += 1
        jobs = [await self._end(job_id) for job_id in stage.jobs]
        return End(tuple(answers), tuple(jobs)), trace

    async def _end(self, job_id: JobId) -> Job:
        """After the play: the records agree, and the job is put away."""
        store = self._plain
        events = await store.queries.events(after=0, limit=100, job_id=job_id)
        life: Life | None = None
        for event in events:
            life = step(life, event)
        row = await store.queries.job(job_id)
        assert row is not None
        assert life is not None
        check_row(life, row)
        check_attempts(life, await store.queries.attempts(job_id))
        try:
            await store.cancel(job_id, "test", "")
        except Conflict:
            pass
        kinds = tuple(event.kind for event in events)
        return Job(str(row.state), row.generation, row.attempt, row.crashes, kinds)

    async def every_order(self, scene: str, verbs: tuple[str, str]) -> None:
        """Each play tells where another choice could have been made; those are played too."""
        forward, backward = [await self.play(scene, verbs, order) for order in (FORWARD, BACKWARD)]
        serial = {forward[0], backward[0]}
        if verbs[0] in PERSONS:
            serial.add((await self.play(scene, ("lose", verbs[1]), []))[0])
        if verbs[1] in PERSONS:
            serial.add((await self.play(scene, (verbs[0], "lose"), []))[0])
        waiting = _branches(forward[1], 1)
        if verbs[0] != verbs[1]:  # else each order has a mirror image
            waiting += _branches(backward[1], 1)
        while waiting:
            order = waiting.pop()
            end, trace = await self.play(scene, verbs, order)
            choices = [chosen for chosen, _ in trace]
            assert end in serial, (
                f"{scene}: {verbs} in the order {choices}: {end}; one after the other: {serial}"
            )
            waiting += _branches(trace, len(order))


def _branches(trace: list[tuple[int, list[int]]], begin: int) -> list[list[int]]:
    """The orders that begin as this play did, and choose otherwise at one place from *begin* on."""
    choices, found = [chosen for chosen, _ in trace], []
    for place in range(begin, len(trace)):
        chosen, able = trace[place]
        other = [*choices[:place], 1 - chosen]
        if len(able) == 2 and _interruptions(other, trace) <= INTERRUPTIONS:
            found.append(other)
    return found


def _interruptions(order: list[int], trace: list[tuple[int, list[int]]]) -> int:
    """How often one was made to wait although it could have gone on."""
    return sum(
        before != now and before in able
        for before, now, (_, able) in zip(order, order[1:], trace[1:], strict=False)
    )


@pytest.mark.parametrize("scene", SCENES)
async def test_two_callers_at_once_are_as_one_after_the_other(
    scene: str, postgres: Postgres
) -> None:  # E4 E5 E51
    with new_database(postgres) as url:
        sides = Side(), Side()
        stores = await open_gated(url, sides[0]), await open_gated(url, sides[1])
        plain = PostgresStore(url, SystemClock(), None)
        await plain.open()
        director = Director(url, sides)
        await director.open()
        try:
            sessions = [await plain.open_session(name, timedelta(hours=1)) for name in "AB"]
            theatre = Theatre(stores, plain, director, sessions)
            for _, *verbs in [pair for pair in pairs() if pair[0] == scene]:
                async with asyncio.timeout(60):
                    await theatre.every_order(scene, (verbs[0], verbs[1]))
            assert theatre.played > 3 * len(SCENES[scene])
            assert await plain.queries.violations() == []
        finally:
            await director.close()
            for store in (*stores, plain):
                await store.close()
