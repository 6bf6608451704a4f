"""How the cost of a call grows with its input.

Hardware counters of instructions are not to be had on virtual machines, so the processor time of this process stands for
them. Noise only adds to it: the minimum of several runs is near the true cost, and a growth that is too large is measured again
before it counts. Doubling an input doubles a linear cost and takes a quadratic one times four; over three doublings, 8 and 64 times
cannot be mistaken for each other.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T", str, bytes)

#: What doubling the input may cost. Time grows faster than instructions where an input outgrows the caches: linear calls
#: were seen at 2.83 beside a process that burns a core. A quadratic one is at 4.
MOST = 3.0
#: Costs below this many seconds tell nothing; from the other on, the input is large enough.
_TOO_SHORT, _LONG_ENOUGH = 0.001, 0.015
_SMALLEST, _LARGEST = 512, 256 << 10
#: Inputs are compared over so many doublings: a quadratic cost grows 64 times as the input grows 8 times.
_DOUBLINGS = 3
_TRIES = 20  # only a call that grows too much uses them all


def growth(call: Callable[[T], object], make: Callable[[int], T]) -> float:
    """Return how many times the cost of *call* grows when `make(size)` is twice as long, at its lowest of several tries.

    Sizes are doubled until a call takes long enough to be measured, so that a quadratic one ends in time. A call that stays
    short for 256 kB grows by 1.
    """
    size = _SMALLEST << _DOUBLINGS
    while _cost(call, make(size), 1) < _LONG_ENOUGH and size < _LARGEST:
        size *= 2
    small, large = make(size >> _DOUBLINGS), make(size)
    lowest = float("inf")
    for _ in range(_TRIES):
        least, most = _cost(call, small, 5), _cost(call, large, 2)
        if most < _TOO_SHORT:
            return 1.0
        lowest = min(lowest, (most / max(least, 1e-9)) ** (1 / _DOUBLINGS))
        if lowest <= MOST:
            break
    return lowest


def repeated(unit: T, size: int, prefix: T, suffix: T) -> T:
    """Return *unit* as often as it takes to fill *size*, between *prefix* and *suffix*."""
    return prefix + unit * (size // len(unit) + 1) + suffix


def _cost(call: Callable[[T], object], text: T, runs: int) -> float:
    gc.disable()  # it would walk through everything else that the tests hold
    try:
        return min(_once(call, text) for _ in range(runs))
    finally:
        gc.enable()


def _once(call: Callable[[T], object], text: T) -> float:
    began = time.process_time()
    with suppress(Exception):  # what a call refuses costs time too
        call(text)
    return time.process_time() - began
