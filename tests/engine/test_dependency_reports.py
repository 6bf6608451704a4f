"""Reports of workers about their dependencies: what is on record is not written every second."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from holdfast.engine.lane_store import DependencyReport
from holdfast.engine.tables.dependencies import Reports
from holdfast.jobs.job import Session, SessionId
from holdfast.jobs.lanes import Dependency
from holdfast.testing import ManualClock

SESSION = Session(id=SessionId(1), worker="w", ttl=timedelta(minutes=1))
REPORT = DependencyReport(Dependency("gateway"), 0, False, 20, 0, None, 0, 0)
OTHER = REPORT._replace(dependency=Dependency("bank"))


def test_only_news_is_written_and_what_will_soon_not_count_any_more() -> None:  # E20
    clock = ManualClock()
    reports = Reports(clock)
    assert reports.news(SESSION, [REPORT, OTHER]) == [REPORT, OTHER]
    reports.remember(SESSION, [REPORT, OTHER])
    assert reports.news(SESSION, [REPORT, OTHER]) == []
    changed = REPORT._replace(calls=1)
    assert reports.news(SESSION, [changed, OTHER]) == [changed]
    assert reports.news(replace(SESSION, id=SessionId(2)), [REPORT]) == [REPORT]
    clock.advance("6s")
    assert reports.news(SESSION, [REPORT, OTHER]) == [REPORT, OTHER]


def test_a_report_whose_write_failed_is_news() -> None:  # E20
    reports = Reports(ManualClock())
    reports.remember(SESSION, [REPORT])
    changed = REPORT._replace(failures=1)
    for _ in range(2):  # it was not remembered
        assert reports.news(SESSION, [changed]) == [changed]
