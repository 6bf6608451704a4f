"""Decide which lanes a worker claims from, how many jobs from each, and which of the claimed jobs may start.

Before the claim, lanes that share a dependency or a limit form one group, and no more jobs are claimed from
it than may start. (The store itself skips lanes that are paused or behind an open breaker.) After the claim,
a job must pass the gates of plug-ins, the breaker as it is known now, the retry budget, and last the rates
and quotas of owners, so that a job refused by another check is not charged. A refused job is released without
using up its attempt.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from holdfast.diagnosis.wait_reasons import WaitReason
from holdfast.engine.engine import Engine
from holdfast.engine.lane_store import Cap, QuotaRefusal
from holdfast.errors import StoreError
from holdfast.jobs.concurrency_keys import own_key
from holdfast.jobs.job import Claimed, Lane, Lease, Session, Settlement
from holdfast.jobs.lanes import Dependency
from holdfast.jobs.verdict import Bury, Failure, Release, Verdict
from holdfast.logging import Log
from holdfast.resilience.gates import GateRequest, Hold, Reject, first_refusal
from holdfast.resilience.guard import CallPermit
from holdfast.worker.dependencies import TRIAL_SPAN, Dependencies
from holdfast.worker.dispatched import JobSource
from holdfast.worker.settlements import QuotaReceipts, unstarted

log = Log("holdfast.worker")


#: A group that had no jobs is skipped while others have plenty, for `PATIENCE` times as long as its claim
#: took and at most `LONGEST_REST` seconds: each group is a statement of its own, and empty claims should take
#: at most 1 % of the time.
PATIENCE, LONGEST_REST = 100, 0.5
#: One claim visits more than `MANY` groups only for `LONGEST_ROUND` seconds. The next claim continues after
#: them.
MANY, LONGEST_ROUND = 32, 0.1
#: How long a gate holds a job when it does not name a time.
ASK_AGAIN = timedelta(seconds=30)


class AdmittedJob(NamedTuple):
    """A job that may start, and its permit to call its dependency, if it has one."""

    claimed: Claimed
    permit: CallPermit | None


@dataclass(slots=True, eq=False)
class Group:
    """Lanes that share a dependency and limits, and are claimed from together."""

    dependency: Dependency | None
    caps: tuple[Cap, ...]
    lanes: list[Lane]
    rests_until: float = -math.inf  #: when it may be claimed from again after it had no jobs
    home: bool = False  #: it has a task's own lane, so there are at most as many of these as tasks


class LaneAdmission:
    """Claims jobs from groups of lanes and admits those that may start.

    Args:
        engine: The engine with the tasks and policies.
        dependencies: The guards of this worker.
        settle: Takes the settlement of a refused job, and the job itself if it is buried.
        source: Where jobs are claimed.
        receipts: Remembers what admitted jobs were charged.
    """

    def __init__(
        self,
        engine: Engine,
        dependencies: Dependencies,
        settle: Callable[[Settlement, Claimed | None], None],
        source: JobSource,
        receipts: QuotaReceipts | None = None,
    ) -> None:
        self._source, self._receipts = source, receipts or QuotaReceipts(engine.store)
        self._engine, self._dependencies, self._settle = engine, dependencies, settle
        self._groups: list[Group] = []
        self._homes: list[Group] = []
        self._homes_next = False  #: the next claim starts with `_homes`
        self._resume_at: Group | None = None  #: where the last claim ran out of time
        self._joined: tuple[list[Group], list[Lane]] = [], []
        self._turn = 0
        self._weights: dict[str, float] = {}
        self._requested: Counter[Dependency] = Counter()  #: calls that unanswered claims may bring

    async def refresh(self, lanes: Iterable[Lane]) -> None:
        """Claim from these *lanes* from now on, with the current policies."""
        await self._serve(lanes)
        admission, store = self._engine.admission, self._engine.store
        store.lanes.share(admission.priorities)
        weights = dict(admission.weights)
        if weights != self._weights:
            # An owner that is no longer named has a weight of 1 again.
            await store.lanes.weigh(dict.fromkeys(self._weights, 1.0) | weights)
            self._weights = weights

    async def _serve(self, lanes: Iterable[Lane]) -> None:
        groups: dict[tuple[Dependency | None, tuple[Cap, ...]], Group] = {}
        for lane in lanes:
            task = self._engine.tasks[lane.task]
            key = Dependency.of(lane), self._engine.admission.caps(lane, task.policy.limits)
            groups.setdefault(key, Group(*key, [])).lanes.append(lane)
        await self._dependencies.serve({dependency for dependency, _ in groups if dependency is not None})
        # An unchanged group keeps its list object: stores cache what they know of the lanes by it.
        before = {(group.dependency, group.caps): group for group in self._groups}
        for key, group in groups.items():
            if key in before and before[key].lanes == group.lanes:
                groups[key] = before[key]
            groups[key].home = any(self._is_home(lane) for lane in groups[key].lanes)
        self._groups = list(groups.values())
        self._homes = [group for group in self._groups if group.home]

    def _is_home(self, lane: Lane) -> bool:
        return lane._replace(fair=False) == self._engine.tasks[lane.task].lane

    @property
    def lanes(self) -> list[Lane]:
        """The lanes from which a job could be claimed now, as far as this worker knows."""
        groups = [group for group in self._groups if self._room(group) > 0]
        if len(groups) == 1:
            return groups[0].lanes
        if groups != self._joined[0]:  # the same list object as long as nothing changes: see `_serve`
            self._joined = groups, [lane for group in groups for lane in group.lanes]
        return self._joined[1]

    def _room(self, group: Group) -> int:
        if group.dependency is None:
            return 1
        return self._dependencies.room(group.dependency) - self._requested[group.dependency]

    async def claim(self, session: Session, wanted: int) -> list[AdmittedJob]:
        """Claim up to *wanted* jobs that may start."""
        rotated, now = self._rotated(), self._engine.clock.monotonic()
        many = len(rotated) - len(self._homes) > MANY
        resting = [one for one in rotated if one.rests_until > now and not (many and one.home)]
        awake = [one for one in rotated if one.rests_until <= now or (many and one.home)]
        admitted = await self._claim_from(awake, session, wanted)
        if admitted or self._resume_at is not None:
            return admitted
        return await self._claim_from(resting, session, wanted)

    def _rotated(self) -> list[Group]:
        """Return the groups in the order to claim from them, with another one first each time.

        Shards of a dependency can make very many groups. Then every second time the groups with a task's own
        lane come first, of which there are at most as many as tasks.
        """
        groups = self._groups
        if self._resume_at is None:
            self._turn = (self._turn + 1) % max(1, len(groups))
        elif self._resume_at in groups:
            self._turn = groups.index(self._resume_at)
        self._resume_at = None
        rotated = groups[self._turn :] + groups[: self._turn]
        homes_first, self._homes_next = self._homes_next, not self._homes_next
        if len(groups) - len(self._homes) <= MANY or not homes_first:
            return rotated
        return self._homes + [group for group in rotated if not group.home]

    async def _claim_from(self, groups: list[Group], session: Session, wanted: int) -> list[AdmittedJob]:
        admitted: list[AdmittedJob] = []
        until = self._engine.clock.monotonic() + LONGEST_ROUND
        for place, group in enumerate(groups):
            left = wanted - len(admitted)
            if left <= 0:
                break
            if place >= MANY + len(self._homes) and self._engine.clock.monotonic() > until:
                self._resume_at = group
                break
            if group.dependency is None:
                admitted += await self._admit(await self._claim_group(session, group, left), None)
            else:
                admitted += await self._claim_for(session, group, group.dependency, left)
        return admitted

    async def _claim_group(self, session: Session, group: Group, limit: int) -> list[Claimed]:
        began = self._engine.clock.monotonic()
        claimed = await self._source.claim(session, group.lanes, limit, caps=group.caps)
        now = self._engine.clock.monotonic()
        group.rests_until = now if claimed else now + min(PATIENCE * (now - began), LONGEST_REST)
        return claimed

    async def _claim_for(
        self, session: Session, group: Group, dependency: Dependency, wanted: int
    ) -> list[AdmittedJob]:
        if self._dependencies.wants_trial(dependency):
            return await self._claim_trial(session, group, dependency)
        room = min(wanted, self._room(group))
        if room <= 0:
            return []
        self._requested[dependency] += room
        try:
            claimed = await self._claim_group(session, group, room)
        finally:
            self._requested[dependency] -= room
        return await self._admit(claimed, dependency)

    async def _claim_trial(self, session: Session, group: Group, dependency: Dependency) -> list[AdmittedJob]:
        """Claim one job as the trial of a half-open breaker, if a trial slot is free and a job is due."""
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
    ) -> list[AdmittedJob]:
        if not claimed:
            return []
        refused: dict[Lease, Verdict] = {}
        if self._engine.admission.gates:
            refused = {one.lease: verdict for one in claimed if (verdict := self._gated(one)) is not None}
        passed = [one for one in claimed if one.lease not in refused] if refused else claimed
        if dependency is None:
            admitted = [AdmittedJob(one, None) for one in passed]
        else:
            answers = [*zip(passed, self._dependencies.enter(dependency, passed, trial), strict=True)]
            admitted = [AdmittedJob(one, answer) for one, answer in answers if isinstance(answer, CallPermit)]
            if len(admitted) < len(answers):
                refused |= {
                    one.lease: answer for one, answer in answers if not isinstance(answer, CallPermit)
                }
        unpaid = await self._charge([one for one, _ in admitted])
        if unpaid:
            for one, permit in admitted:
                if permit is not None and one.lease in unpaid:
                    self._dependencies.undo(permit)
            admitted = [one for one in admitted if one.claimed.lease not in unpaid]
        if refused or unpaid:
            await self._send_back(claimed, refused | unpaid, dependency, trial)
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
            self._settle(unstarted(one, verdict), known)
            if trial is not None and dependency is not None:
                await self._dependencies.return_trial(dependency, trial)

    def _gated(self, claimed: Claimed) -> Verdict | None:
        """Return the verdict for a job that a gate of a plug-in holds or rejects, else None."""
        now = self._engine.clock.now()
        refusal = first_refusal(
            self._engine.admission.gates,
            GateRequest(
                lane=claimed.lane,
                now=now,
                owner=claimed.owner,
                key=own_key(claimed.key),
                attempt=claimed.attempt,
                priority=claimed.priority,
            ),
        )
        match refusal:
            case None:
                return None
            case (gate, Reject(reason)):
                return Bury(Failure.of("NOT_ADMITTED", f"{gate}: {reason}"))
            case (gate, Hold(until, reason)):
                wait = ASK_AGAIN if until is None else max(until - now, timedelta(seconds=1))
                return Release(wait, f"{gate}: {reason}", wait_reason=WaitReason.GATE)

    async def _charge(self, claimed: list[Claimed]) -> dict[Lease, Verdict]:
        """Charge the jobs, and return a verdict for each whose owner or key has used up a rate or a quota."""
        groups = []
        for one in claimed:
            if one.owner is None and one.key is None:
                continue  # only owners and keys have rates and quotas
            policy = self._engine.tasks[one.lane.task].policy
            charges = self._engine.admission.charges(one, policy.limits, policy.cost)
            if charges:
                groups.append((one, charges))
        if not groups:
            return {}
        try:
            answers = await self._engine.store.lanes.charge([charges for _, charges in groups])
        except (
            StoreError
        ) as error:  # this worker holds their leases: running them is better than letting them expire
            log.warning("quota.charge_failed", reason=str(error))
            return {}
        refused: dict[Lease, Verdict] = {}
        for (one, charges), refusal in zip(groups, answers, strict=True):
            if refusal is None:
                self._receipts.keep(one.lease, charges)
            else:
                refused[one.lease] = self._release_until_reset(refusal)
        return refused

    def _release_until_reset(self, refusal: QuotaRefusal) -> Release:
        charge, wait = refusal.charge, refusal.resets_in
        if charge.period == "rate":
            # Spread over the next round, or all of them would come back for the one place that is free by
            # then.
            wait += self._engine.rng.random() * charge.per / max(charge.limit, 1) * 2
            return Release(wait, f"the rate of {charge.scope} is used up", wait_reason=WaitReason.OWNER_RATE)
        used = f"{refusal.used} of {charge.limit}"
        wait += timedelta(seconds=60 * self._engine.rng.random())
        reason = f"the {charge.period}'s {charge.scope} is used up ({used})"
        return Release(wait, reason, wait_reason=WaitReason.QUOTA)
