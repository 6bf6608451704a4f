"""From which lanes a worker claims, how many from each, and which of the claimed may start.

Before the claim: lanes that share a dependency or a limit are one group, which is asked for no more than there is room
for. (What is paused, or behind an open breaker, the store itself passes by.) After the claim: gates of plug-ins, the breaker as
it is known now, the retry budget, and last the rates and quotas of owners: what another refuses is not charged. What they
refuse goes back with its attempt.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from holdfast.domain.concurrency_keys import own_key
from holdfast.domain.gates import GateRequest, Hold, Reject, first_refusal
from holdfast.domain.guard import CallPermit
from holdfast.domain.job import Claimed, Lane, Lease, Session, Settlement
from holdfast.domain.lanes import Dependency
from holdfast.domain.verdict import Bury, Failure, Release, Verdict
from holdfast.domain.wait_reasons import WaitReason
from holdfast.engine.engine import Engine
from holdfast.engine.lane_store import Cap, QuotaRefusal
from holdfast.errors import StoreError
from holdfast.logs import Log
from holdfast.worker.dependencies import TRIAL_SPAN, Dependencies
from holdfast.worker.dispatched import JobSource
from holdfast.worker.quota_receipts import QuotaReceipts

log = Log("holdfast.worker")


#: A group that had nothing is left alone while others have plenty, for `PATIENCE` times as long as it took to ask it, and half a
#: second at the most: each group is a statement of its own, and asking in vain shall not take more than a hundredth of the time.
PATIENCE, LONGEST_REST = 100, 0.5
#: One claim asks more groups than this only for this many seconds; the next claim goes on behind them.
MANY, LONGEST_ROUND = 32, 0.1
#: When a gate does not say until when it holds.
ASK_AGAIN = timedelta(seconds=30)


class AdmittedJob(NamedTuple):
    """A job that may start, and its leave to call its dependency."""

    claimed: Claimed
    given: CallPermit | None


@dataclass(slots=True, eq=False)
class Group:
    dependency: Dependency | None
    caps: tuple[Cap, ...]
    lanes: list[Lane]
    rests_until: float = -math.inf  #: it had nothing when it was asked last
    home: bool = False  #: it has a task's own lane: there are no more of these than tasks


class LaneAdmission:
    def __init__(
        self,
        engine: Engine,
        dependencies: Dependencies,
        settle: Callable[[Settlement, Claimed | None], None],
        source: JobSource,
        receipts: QuotaReceipts | None = None,
    ) -> None:
        """*source* is where jobs are claimed; *receipts* keep what they were charged."""
        self._source, self._receipts = source, receipts or QuotaReceipts(engine.store)
        self._engine, self._dependencies, self._settle = engine, dependencies, settle
        self._groups: list[Group] = []
        self._homes: list[Group] = []
        self._odd = False
        self._unasked: Group | None = None  #: where the last claim has stopped asking
        self._joined: tuple[list[Group], list[Lane]] = [], []
        self._turn = 0
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
        # A group that has not changed stays the same list: stores remember what they know of its lanes.
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
        """Those that a job could be claimed from now, as far as this worker knows."""
        groups = [group for group in self._groups if self._room(group) > 0]
        if len(groups) == 1:
            return groups[0].lanes
        if groups != self._joined[0]:  # the same list as long as nothing changes: see `_serve`
            self._joined = groups, [lane for group in groups for lane in group.lanes]
        return self._joined[1]

    def _room(self, group: Group) -> int:
        if group.dependency is None:
            return 1
        return self._dependencies.room(group.dependency) - self._asked[group.dependency]

    async def claim(self, session: Session, wanted: int) -> list[AdmittedJob]:
        """Up to *wanted* jobs that may start."""
        turned, now = self._in_turn(), self._engine.clock.monotonic()
        many = len(turned) - len(self._homes) > MANY
        resting = [one for one in turned if one.rests_until > now and not (many and one.home)]
        awake = [one for one in turned if one.rests_until <= now or (many and one.home)]
        found = await self._claim_from(awake, session, wanted)
        if found or self._unasked is not None:
            return found
        return await self._claim_from(resting, session, wanted)

    def _in_turn(self) -> list[Group]:
        """The groups in the order to ask them, another one first each time. Callers can make very many, by shards of a
        dependency: every second time those of tasks' own lanes come first, of which there are no more than tasks."""
        groups = self._groups
        if self._unasked is None:
            self._turn = (self._turn + 1) % max(1, len(groups))
        elif self._unasked in groups:
            self._turn = groups.index(self._unasked)
        self._unasked = None
        turned = groups[self._turn :] + groups[: self._turn]
        self._odd = not self._odd
        if len(groups) - len(self._homes) <= MANY or self._odd:
            return turned
        return self._homes + [group for group in turned if not group.home]

    async def _claim_from(self, groups: list[Group], session: Session, wanted: int) -> list[AdmittedJob]:
        admitted: list[AdmittedJob] = []
        until = self._engine.clock.monotonic() + LONGEST_ROUND
        for place, group in enumerate(groups):
            left = wanted - len(admitted)
            if left <= 0:
                break
            if place >= MANY + len(self._homes) and self._engine.clock.monotonic() > until:
                self._unasked = group
                break
            if group.dependency is None:
                admitted += await self._admit(await self._ask(session, group, left), None)
            else:
                admitted += await self._claim_for(session, group, group.dependency, left)
        return admitted

    async def _ask(self, session: Session, group: Group, limit: int) -> list[Claimed]:
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
        self._asked[dependency] += room
        try:
            claimed = await self._ask(session, group, room)
        finally:
            self._asked[dependency] -= room
        return await self._admit(claimed, dependency)

    async def _claim_trial(self, session: Session, group: Group, dependency: Dependency) -> list[AdmittedJob]:
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
    ) -> list[AdmittedJob]:
        if not claimed:
            return []
        refused: dict[Lease, Verdict] = {}
        if self._engine.admission.gates:
            refused = {one.lease: verdict for one in claimed if (verdict := self._stopped(one)) is not None}
        asking = [one for one in claimed if one.lease not in refused] if refused else claimed
        if dependency is None:
            admitted = [AdmittedJob(one, None) for one in asking]
        else:
            leave = [*zip(asking, self._dependencies.enter(dependency, asking, trial), strict=True)]
            admitted = [AdmittedJob(one, given) for one, given in leave if isinstance(given, CallPermit)]
            if len(admitted) < len(leave):
                refused |= {one.lease: given for one, given in leave if not isinstance(given, CallPermit)}
        unpaid = await self._unpaid([one for one, _ in admitted])
        if unpaid:
            for one, call in admitted:
                if call is not None and one.lease in unpaid:
                    self._dependencies.undo(call)
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
            self._settle(Settlement(one.lease, verdict, one.attempt), known)
            if trial is not None and dependency is not None:
                await self._dependencies.return_trial(dependency, trial)

    def _stopped(self, claimed: Claimed) -> Verdict | None:
        """What the gates of plug-ins say."""
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

    async def _unpaid(self, claimed: list[Claimed]) -> dict[Lease, Verdict]:
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
            log.warning("quota.charge_failed", reason=str(error))
            return {}
        refused: dict[Lease, Verdict] = {}
        for (one, charges), refusal in zip(groups, answers, strict=True):
            if refusal is None:
                self._receipts.keep(one.lease, charges)
            else:
                refused[one.lease] = self._put_off(refusal)
        return refused

    def _put_off(self, refusal: QuotaRefusal) -> Release:
        charge, wait = refusal.charge, refusal.resets_in
        if charge.period == "rate":
            # Spread over the next round, so that they do not all come back for the one place that is free by then.
            wait += self._engine.rng.random() * charge.per / max(charge.limit, 1) * 2
            return Release(wait, f"the rate of {charge.scope} is used up", wait_reason=WaitReason.OWNER_RATE)
        used = f"{refusal.used} of {charge.limit}"
        wait += timedelta(seconds=60 * self._engine.rng.random())
        reason = f"the {charge.period}'s {charge.scope} is used up ({used})"
        return Release(wait, reason, wait_reason=WaitReason.QUOTA)
