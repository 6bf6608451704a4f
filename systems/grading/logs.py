"""Logging settings of the grading processes."""

from __future__ import annotations

import logging


def silence_drivers() -> None:
    """Silence the AMQP driver. We log a lost broker in one line, and the driver would add a traceback."""
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
