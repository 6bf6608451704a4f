"""How long to wait before the next attempt: a curve, a jitter and a cap.

A `Backoff` computes the delay after the *attempt*-th failure (counted from 1) from a *chance* in [0, 1) and
the *previous* delay. Randomness comes in as an argument, so the same arguments give the same delay.

Stores do not keep the previous delay. Without it, the earlier delays are simulated from the same chance: each
delay has the right distribution, though not the exact values of this one job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from typing import Literal

from holdfast.errors import UsageError
from holdfast.values.duration import Duration, duration
from holdfast.values.validation import any_span

Curve = Callable[[int], timedelta]
Jitter = Callable[[timedelta, float, timedelta], timedelta]  # (delay, chance, previous) → delay

#: Largest exponent: beyond it every reasonable backoff is at its cap, and a timedelta would overflow.
_STEEPEST = 40
_FOREVER = timedelta(days=365)
LONGEST = timedelta(hours=1)


def _scaled(base: timedelta, number: float, power: float) -> timedelta:
    """Return base × number ** power, at most a year, so that huge attempt numbers do not overflow."""
    try:
        seconds = base.total_seconds() * number**power
    except OverflowError:
        return _FOREVER if base else base
    return timedelta(seconds=min(seconds, _FOREVER.total_seconds()))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def exponential(base: Duration, factor: float = 2.0) -> Curve:
    """Return the curve base × factor ** (attempt - 1)."""
    start = any_span("base", base)
    if not _is_number(factor) or not 1 <= factor < inf:
        raise UsageError(f"factor is {factor!r:.40}; a backoff that shrinks is a retry storm, use 1 or more")
    return lambda attempt: _scaled(start, factor, min(attempt - 1, _STEEPEST))


def polynomial(base: Duration, power: float = 2.0) -> Curve:
    """Return the curve base × attempt ** power."""
    start = any_span("base", base)
    if not _is_number(power) or not 0 <= power < inf:
        raise UsageError(f"power is {power!r:.40}; a backoff that shrinks is a retry storm, use 0 or more")
    return lambda attempt: _scaled(start, float(min(attempt, 10_000)), power)


def fixed(delay: Duration) -> Curve:
    """Return a curve with the same *delay* after every attempt."""
    span = any_span("delay", delay)
    return lambda attempt: span


def table(delays: Sequence[Duration]) -> Curve:
    """Return a curve with explicit *delays*; the last one repeats."""
    if isinstance(delays, str) or not isinstance(delays, Sequence) or not delays:
        raise UsageError(
            f'a table is a list of at least one delay, e.g. ["5s", "25s", "2m"], not {delays!r:.40}'
        )
    spans = [any_span("delays", delay) for delay in delays]
    return lambda attempt: spans[min(attempt, len(spans)) - 1]


def additive(most: Duration) -> Jitter:
    """Return a jitter that adds 0 to *most* to the delay."""
    span = duration(most)
    return lambda delay, chance, previous: delay + span * chance


def proportional(share: float) -> Jitter:
    """Return a jitter that changes the delay by up to ± *share* of it."""
    if not 0 <= share <= 1:
        raise UsageError(f"a proportional jitter is a share between 0 and 1, not {share}")
    return lambda delay, chance, previous: delay * (1 + share * (2 * chance - 1))


def full(delay: timedelta, chance: float, previous: timedelta) -> timedelta:
    """Return a delay between 0 and *delay*."""
    return delay * chance


def equal(delay: timedelta, chance: float, previous: timedelta) -> timedelta:
    """Return a delay between half of *delay* and *delay*."""
    return delay / 2 + delay / 2 * chance


def decorrelated(delay: timedelta, chance: float, previous: timedelta) -> timedelta:
    """Return a delay between *delay* and three times the previous one (or *delay*, at first)."""
    return delay + (max((previous or delay) * 3, delay) - delay) * chance


def none(delay: timedelta, chance: float, previous: timedelta) -> timedelta:
    """Return *delay* unchanged."""
    return delay


_NAMED: dict[str, Jitter] = {"full": full, "equal": equal, "decorrelated": decorrelated, "none": none}
JitterSpec = Duration | Literal["full", "equal", "decorrelated", "none"] | Jitter | None


def jitter_of(spec: JitterSpec) -> Jitter:
    """Return the jitter that *spec* describes; raise `UsageError` for anything else.

    It is a name ("full"), a share ("20%", proportional), a duration ("5s", additive), a function, or None for
    no jitter.
    """
    if spec is None:
        return none
    if callable(spec):
        return spec
    if isinstance(spec, str) and spec in _NAMED:
        return _NAMED[spec]
    try:
        if not isinstance(spec, str) or not spec.endswith("%"):
            return additive(spec)
        share = float(spec[:-1].lstrip("±")) / 100
    except (ValueError, UsageError):
        named = ", ".join(sorted(_NAMED))
        raise UsageError(f'jitter is {spec!r:.40}; write "20%", "5s" or one of {named}') from None
    return proportional(share)


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delays between attempts: a curve with a jitter, up to a cap."""

    curve: Curve
    jitter: Jitter = none
    cap: timedelta = LONGEST

    @classmethod
    def of(cls, curve: Curve, jitter: JitterSpec = None, cap: Duration | None = None) -> Backoff:
        """Return a backoff from options as users write them."""
        return cls(curve, jitter_of(jitter), LONGEST if cap is None else duration(cap))

    def delay(self, attempt: int, chance: float, previous: timedelta | None = None) -> timedelta:
        """Return the delay after the *attempt*-th failure: not negative, at most the cap."""
        if previous is None:
            previous = self._previous(attempt, chance)
        wanted = self.jitter(min(self.curve(max(attempt, 1)), self.cap), chance, previous)
        return max(timedelta(), min(wanted, self.cap))

    def _previous(self, attempt: int, chance: float) -> timedelta:
        """Return a simulated delay before attempt *attempt*."""
        delay, state = timedelta(), int(chance * 2**53)
        for earlier in range(max(1, attempt - _STEEPEST), attempt):
            # A linear congruential generator makes a series of chances from the given one.
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            delay = self.delay(earlier, state / 2**64, delay)
        return delay
