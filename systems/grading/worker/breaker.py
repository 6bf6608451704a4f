"""The breaker before the provider (G7), as values: what was seen of the last calls decides whether there is a next one.

closed ──more than half of the window failed──► open ──cooldown──► half open ──all trials good──► closed
                                                 ▲                     │
                                                 └──a trial failed─────┘
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

State = Literal["closed", "open", "half_open"]


class Policy(NamedTuple):
    window: int = 20
    cooldown: float = 30.0  #: seconds
    trials: int = 3
    trial_lasts: float = 120.0  #: a trial whose worker was lost is given to another after this


class Permit(NamedTuple):
    """May the call be made? If not, *wait* is how long until it is worth to ask again."""

    granted: bool
    wait: float = 0.0
    trial: bool = False


class Breaker(msgspec.Struct, frozen=True):
    state: State = "closed"
    outcomes: tuple[bool, ...] = ()  #: of the last calls, oldest first; True: it went well
    opened_at: float = 0.0
    trials: tuple[float, ...] = ()  #: when those that are under way began
    good: int = 0  #: trials that went well
    opened: int = 0  #: how often it has opened

    def ask(self, policy: Policy, now: float) -> tuple[Breaker, Permit]:
        """Before a call."""
        if self.state == "closed":
            return self, Permit(True)
        if self.state == "open":
            left = self.opened_at + policy.cooldown - now
            if left > 0:
                return self, Permit(False, left)
            return replace(self, state="half_open", trials=(now,), good=0), Permit(True, trial=True)
        live = tuple(began for began in self.trials if now - began < policy.trial_lasts)
        if len(live) + self.good < policy.trials:
            return replace(self, trials=(*live, now)), Permit(True, trial=True)
        # The trials decide soon: whoever comes meanwhile asks again then.
        return replace(self, trials=live), Permit(False, min(policy.cooldown, 1.0))

    def tell(self, policy: Policy, now: float, *, good: bool | None, trial: bool = False) -> Breaker:
        """After a call. None: it says nothing about the provider's health."""
        if trial != (self.state == "half_open"):
            return self  # it began before the state it was let in by had ended: others have been heard since
        match self.state, good:
            case "half_open", True:
                if self.good + 1 >= policy.trials:
                    return Breaker(opened=self.opened)
                return replace(self, trials=self.trials[1:], good=self.good + 1)
            case "half_open", False:
                return self._open(now)
            case "half_open", None:
                return replace(self, trials=self.trials[1:])
            case "closed", bool():
                outcomes = (*self.outcomes, bool(good))[-policy.window :]
                failed = outcomes.count(False)
                if len(outcomes) == policy.window and failed * 2 > policy.window:
                    return self._open(now)
                return replace(self, outcomes=outcomes)
        return self

    def _open(self, now: float) -> Breaker:
        return Breaker(state="open", opened_at=now, opened=self.opened + 1)


replace = msgspec.structs.replace
