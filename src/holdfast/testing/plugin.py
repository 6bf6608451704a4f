"""The pytest plug-in.

It loads in every run where Holdfast is installed, so it imports only what a test uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.testing.clock import ManualClock


@pytest.fixture
def holdfast_clock() -> ManualClock:
    """A clock that moves only when the test advances it: `holdfast_clock.advance("1m")`."""
    from holdfast.testing.clock import ManualClock

    return ManualClock()


@pytest.fixture
def holdfast_memory(holdfast_clock: ManualClock) -> Iterator[Callable[[Holdfast], Holdfast]]:
    """A function that puts an app in memory for this test, on `holdfast_clock`: `holdfast_memory(app)`."""
    from contextlib import ExitStack

    from holdfast.testing.in_memory import app_in_memory

    with ExitStack() as stack:
        yield lambda app: stack.enter_context(app_in_memory(app, clock=holdfast_clock))
