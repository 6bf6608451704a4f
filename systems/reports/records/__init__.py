"""What is known of reports beside their jobs, in the same database: each report, each paid call, each capture.

One text of SQL for both databases: `$1` is written `?1` for SQLite, and the types have a meaning in each.
"""

from __future__ import annotations

from systems.reports.records.records import Capture, Records, Report, open_records

__all__ = ["Capture", "Records", "Report", "open_records"]
