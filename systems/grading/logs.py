"""Where the processes of grading say what they do: to stderr, from the level of HOLDFAST_LOG_LEVEL on."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping

import structlog


def log_to_stderr(environment: Mapping[str, str]) -> None:
    level = logging.getLevelNamesMapping().get(
        environment.get("HOLDFAST_LOG_LEVEL", "info").upper(), logging.INFO
    )
    # A broker that goes away is told of by us, in one line; the driver would add the trace of its reader.
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    structlog.configure(
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )
