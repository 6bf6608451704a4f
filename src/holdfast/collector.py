"""Python's search for garbage, in processes that are ours: there is next to none to find."""

from __future__ import annotations

import gc

#: How many objects may be new before they are looked through: a thousand jobs are made of fewer.
YOUNG_OBJECTS = 10_000


def come_seldom() -> None:
    """What is imported lives on, and what jobs in hand are made of goes by itself when they end. At Python's usual 700 new
    objects a tenth of a busy worker's time went there, and some of each command's start."""
    young, *older = gc.get_threshold()
    if young:  # 0: whoever owns the process wants none
        gc.set_threshold(max(young, YOUNG_OBJECTS), *older)


def pass_by_what_is_there() -> None:
    """All that a process has imported when it begins its work."""
    gc.collect()
    gc.freeze()
