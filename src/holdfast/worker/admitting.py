"""From which lanes a worker claims, how many from each, and which of the claimed may start.

Before the claim: lanes that share a dependency or a limit are one group, which is asked for no more than there is room
for. (What is paused, or behind an open breaker, the store itself passes by.) After the claim: the breaker as it is known
now, the retry budget, rates and quotas of owners, and gates of plug-ins. What they refuse goes back with its attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import NamedTuple

from holdfast.domain.gates import Asking, Hold, Reject, first_refusal
from holdfast.domain.job import Claimed, Lane, Lease, Session, Settlement
from holdfast.domain.keys import own_key
from holdfast.domain.lanes import Dependency
from holdfast.domain.verdict import Bury, Failure, Release, Verdict
from holdfast.engine.engine import Engine
from holdfast.engine.lanestore import Cap, Refusal
from holdfast.errors import StoreError
from holdfast.logs import Log
from holdfast.worker.brokered import Source
from holdfast.worker.dependencies import TRIAL_SPAN, Dependencies, Pass

log = Log("holdfast.worker")


#: When a gate does not say until when it holds.
ASK_AGAIN = timedelta(seconds=30)
#: So many seconds a group that had no job is asked after the others: a worker with enough to do asks it no more often.
A_MOMENT = 0.1


class Admitted(NamedTuple):
    """A job that may start, and its leave to call its dependency."""

    claimed: Claimed
    given: Pass | None


class Group(NamedTuple):
    dependency: Dependency | None
    caps: tuple[Cap, ...]
    lanes: list[Lane]


class Admitting:
    def __init__(
        self,
        engine: Engine,
        dependencies: Dependencies,
        settle: Callable[[Settlement, Claimed | None], None],
        source: Source,
    ) -> None:
        """*source* is where jobs are claimed."""
        self._source = source
        self._engine, self._dependencies, self._settle = engine, dependencies, settle
        self._groups: list[Group] = []
        self._turn = 0
        self._empty_until: dict[
            int, float
        ] = {}  #: groups that had nothing when they were asked last, by their place
        self._weights: dict[str, float] = {}
        self._asked: Counter[Dependency] = Counter()  #: calls that claims on their way may bring

    async def refresh(self, lanes: Iterable[Lane]) -> None:
        """Claim from these lanes from now on, by the policies as they are now."""
        await self._serve(lanes)
        admission, store = self._engine.admission, self._engine.store
        store.share(admission.priorities)
        weights = dict(admission.weights)
        if weights != self._weights:
            await store.weigh(
                dict.fromkeys(self._weights, 1.0) | weights
            )  # who is not named any more weighs 1
            self._weights = weights

    async def _serve(self, lanes: Iterable[Lane]) -> None:
        groups: dict[tuple[Dependency | None, tuple[Cap, ...]], Group] = {}
        for lane in lanes:
            task = self._engine.tasks[lane.task]
            key = Dependency.of(lane), self._engine.admission.caps(lane, task.policy.limits)
            groups.setdefault(key, Group(*key, [])).lanes.append(lane)
        await self._dependencies.serve({dependency for dependency, _ in groups if dependency is not None})
        self._groups = list(groups.values())
        self._empty_until.clear()

    @property
    def lanes(self) -> list[Lane]:
        """Those that a job could be claimed from now, as far as this worker knows."""
        return [lane for group in self._groups if self._room(group) > 0 for lane in group.lanes]

    def _room(self, group: Group) -> int:
        if group.dependency is None:
            return 1
        return self._dependencies.room(group.dependency) - self._asked[group.dependency]

    async def claim(self, session: Session, wanted: int) -> list[Admitted]:
        """Up to *wanted* jobs that may start."""
        admitted: list[Admitted] = []
        groups = self._groups
        for place in self._order():
            group, left = groups[place], wanted - len(admitted)
            if left <= 0:
                break
            if group.dependency is None:
                claimed = await self._source.claim(session, group.lanes, left, caps=group.caps)
                found = await self._admit(claimed, None)
            else:
                found = await self._claim_for(session, group, group.dependency, left)
            if found:
                self._empty_until.pop(place, None)
            else:
                self._empty_until[place] = self._engine.clock.monotonic() + A_MOMENT
            admitted += found
        return admitted

    def _order(self) -> list[int]:
        """Each in turn is the first, but those that had nothing a moment ago are the last: they cost as much to ask as those
        that have something."""
        self._turn += 1
        count, now = len(self._groups), self._engine.clock.monotonic()
        turns = [(self._turn + place) % count for place in range(count)]
        return sorted(turns, key=lambda place: self._empty_until.get(place, 0.0) > now)

    async def _claim_for(
        self, session: Session, group: Group, dependency: Dependency, wanted: int
    ) -> list[Admitted]:
        if self._dependencies.wants_trial(dependency):
            return await self._claim_trial(session, group, dependency)
        room = min(wanted, self._room(group))
        if room <= 0:
            return []
        self._asked[dependency] += room
        try:
            claimed = await self._source.claim(session, group.lanes, room, caps=group.caps)
        finally:
            self._asked[dependency] -= room
        return await self._admit(claimed, dependency)

    async def _claim_trial(self, session: Session, group: Group, dependency: Dependency) -> list[Admitted]:
        """One job behind the half-open breaker, if there is a slot for it and a job."""
        timeouts = [self._engine.tasks[lane.task].policy.timeout or TRIAL_SPAN for lane in group.lanes]
        trial = await self._dependencies.take_trial(dependency, max(timeouts))
        if trial is None:
            return []
        claimed: list[Claimed] = []
        try:
            claimed = await self._source.claim(session, group.lanes, 1, caps=group.caps, trial=True)
        finally:
            if not claimed:
                await self._dependencies.return_trial(dependency, trial)
        return await self._admit(claimed, dependency, trial)

    # -- after the claim --------------------------------------------------------------------------------------------
    async def _admit(
        self, claimed: list[Claimed], dependency: Dependency | None, trial: str | None = None
    ) -> list[Admitted]:
        if not claimed:
            return []
        refused = await self._refused(claimed)
        if self._engine.admission.gates:
            for one in claimed:
                verdict = None if one.lease in refused else self._stopped(one)
                if verdict is not None:
                    refused[one.lease] = verdict
        if refused:
            await self._send_back(claimed, refused, dependency, trial)
            claimed = [one for one in claimed if one.lease not in refused]
        if dependency is None:
            return [Admitted(one, None) for one in claimed]
        admitted: list[Admitted] = []
        refused = {}
        for one, given in zip(claimed, self._dependencies.enter(dependency, claimed, trial), strict=True):
            if isinstance(given, Pass):
                admitted.append(Admitted(one, given))
            else:
                refused[one.lease] = given
        if refused:
            await self._send_back(claimed, refused, dependency, trial)
        return admitted

    async def _send_back(
        self,
        claimed: list[Claimed],
        refused: Mapping[Lease, Verdict],
        dependency: Dependency | None,
        trial: str | None,
    ) -> None:
        for one in claimed:
            verdict = refused.get(one.lease)
            if verdict is None:
                continue
            known = one if isinstance(verdict, Bury) else None
            self._settle(Settlement(one.lease, verdict, one.attempt), known)
            if trial is not None and dependency is not None:
                await self._dependencies.return_trial(dependency, trial)

    def _stopped(self, claimed: Claimed) -> Verdict | None:
        """What the gates of plug-ins say."""
        now = self._engine.clock.now()
        refusal = first_refusal(
            self._engine.admission.gates,
            Asking(
                lane=claimed.lane,
                now=now,
                owner=claimed.owner,
                key=own_key(claimed.key),
                attempt=claimed.attempt,
            ),
        )
        match refusal:
            case None:
                return None
            case (gate, Reject(reason)):
                return Bury(Failure.of("NOT_ADMITTED", f"{gate}: {reason}"))
            case (gate, Hold(until, reason)):
                wait = ASK_AGAIN if until is None else max(until - now, timedelta(seconds=1))
                return Release(wait, f"{gate}: {reason}")

    async def _refused(self, claimed: list[Claimed]) -> dict[Lease, Verdict]:
        """Those whose owner or key has used up a rate or a quota."""
        groups = []
        for one in claimed:
            policy = self._engine.tasks[one.lane.task].policy
            charges = self._engine.admission.charges(one, policy.limits, policy.cost)
            if charges:
                groups.append((one, charges))
        if not groups:
            return {}
        try:
            answers = await self._engine.store.charge([charges for _, charges in groups])
        except StoreError as error:  # their leases are ours: better run them than let them hang
            log.warning("charge.failed", reason=str(error))
            return {}
        return {
            one.lease: self._put_off(refusal)
            for (one, _), refusal in zip(groups, answers, strict=True)
            if refusal is not None
        }

    def _put_off(self, refusal: Refusal) -> Release:
        charge, wait = refusal.charge, refusal.resets_in
        if charge.period == "rate":
            # Spread over the next round, so that they do not all come back for the one place that is free by then.
            wait += self._engine.rng.random() * charge.per / max(charge.limit, 1) * 2
            return Release(wait, f"the rate of {charge.scope} is used up")
        used = f"{refusal.used} of {charge.limit}"
        wait += timedelta(seconds=60 * self._engine.rng.random())
        return Release(wait, f"the {charge.period}'s {charge.scope} is used up ({used})")
