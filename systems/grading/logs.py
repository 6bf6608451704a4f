"""What the processes of grading do not want to hear."""

from __future__ import annotations

import logging


def hush_drivers() -> None:
    """A broker that goes away is told of by us, in one line; the driver would add the trace of its reader."""
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
