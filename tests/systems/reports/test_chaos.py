"""The chaos run in small: workers killed, the bucket and the database away, and every report ends once (P1, P3)."""

from __future__ import annotations

import pytest

from benchmarks.reports import measure, parse
from devservices.postgres import Postgres

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_every_report_ends_once_and_no_recorded_answer_is_paid_again(
    postgres: Postgres,
) -> None:  # P1 P3 E5 E40
    """They come for as long as the bucket and the database go away one after the other, and two workers are killed meanwhile."""
    few = ["--documents", "20", "--kill-every", "2", "--away", "1", "--over", "6", "--steps", "0"]
    assert measure(parse(few), postgres)
