"""Format moments, durations and quoted texts for sentences that people read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.values.duration import format_duration


def sentence(text: str) -> str:
    """Return *text* with a capital letter and a period."""
    return f"{text[0].upper()}{text[1:]}."


def one_line(text: object) -> str:
    """Return *text* on one line and without a final period, so that it fits into a sentence."""
    return " ".join(str(text or "").split()).rstrip(".")


def aside(reason: object) -> str:
    """Return *reason* in parentheses after a space, or "" when there is none."""
    return f" ({one_line(reason)})" if reason else ""


def moment_of(moment: datetime, now: datetime) -> str:
    """Return *moment* as a time in UTC, with the date only when it is not the date of *now*."""
    moment = moment.astimezone(UTC)
    same = moment.date() == now.astimezone(UTC).date()
    return f"{moment:%H:%M:%S} UTC" if same else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def when(moment: datetime, now: datetime) -> str:
    """Return *moment* with the time left until it: "09:30:00 UTC (in 5m)"."""
    return f"{moment_of(moment, now)} (in {_roughly(moment - now)})"


def _roughly(span: timedelta) -> str:
    """Return *span* rounded up to the second, the minute or the hour, depending on its length."""
    unit = next((unit for limit, unit in _ROUNDING if span < limit), timedelta(hours=1))
    return format_duration(max(timedelta(seconds=1), -(-span // unit) * unit))


#: Spans below the first value are rounded to the second.
_ROUNDING = (
    (timedelta(hours=1), timedelta(seconds=1)),
    (timedelta(days=1), timedelta(minutes=1)),
)
