"""What the events of breakers tell of outages that have happened."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.jobs.job import Event, JobId
from holdfast.simulate.recorded import Outage, outages

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: float, kind: str, dependency: str, **meta: object) -> Event:
    when, told = NOON + timedelta(seconds=seconds), {"dependency": dependency, **meta}
    return Event(id=int(seconds), at=when, kind=kind, job_id=JobId(""), epoch=0, attempt=0, meta=told)


def test_an_outage_lasts_from_the_first_opening_to_the_closing() -> None:  # E75
    found = outages(
        [
            at(0, "breaker_opened", "gateway", votes=2),
            at(5, "queued", "gateway"),
            at(30, "breaker_half_open", "gateway"),
            at(31, "breaker_opened", "gateway", reopens=1),
            at(40, "breaker_opened", "bank", by="ann"),  # nobody's outage
            at(50, "breaker_opened", "mail#eu"),
            at(75, "breaker_closed", "gateway"),
            at(80, "breaker_closed", "mail#eu", by="ann"),
            at(90, "breaker_closed", "bank", by="ann"),
            at(99, "breaker_opened", "gateway"),  # not over
        ]
    )
    assert [(one.dependency, (one.ended - one.began).total_seconds()) for one in found] == [
        ("gateway", 75),
        ("mail#eu", 30),
    ]
    scenario = found[0].scenario()
    assert (scenario.name, scenario.begins, scenario.ends) == ("gateway 2026-03-01T12:00:00", 60, 135)
    assert scenario.about == "on record: gateway was down for 75 s"


def test_a_long_outage_is_cut() -> None:  # E75
    scenario = Outage("gateway", NOON, NOON + timedelta(hours=5)).scenario()
    assert scenario.ends - scenario.begins == 3600
    assert scenario.about == "on record: gateway was down for 18000 s, of which 3600 s are played"
