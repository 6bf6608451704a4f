"""Moments as PostgreSQL gives them."""

from __future__ import annotations

from datetime import datetime


def moment(value: datetime | str) -> datetime:
    """A column is a moment already; inside JSON it is text."""
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)
