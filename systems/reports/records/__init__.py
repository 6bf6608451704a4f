"""The system's own tables, in the database of the jobs: reports, paid calls and captured answers.

The same SQL serves both databases: `$1` becomes `?1` for SQLite, and both know the column types.
"""

from __future__ import annotations

from systems.reports.records.records import Capture, Records, Report, open_records

__all__ = ["Capture", "Records", "Report", "open_records"]
