"""Words for sentences that people read: moments, spans, and texts of others that stand within."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.domain.duration import format_duration


def sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def one_line(text: object) -> str:
    """One line that can stand within a sentence."""
    return " ".join(str(text or "").split()).rstrip(".")


def aside(reason: object) -> str:
    return f" ({one_line(reason)})" if reason else ""


def moment_of(moment: datetime, now: datetime) -> str:
    """Its day only where that is another one."""
    moment = moment.astimezone(UTC)
    same = moment.date() == now.astimezone(UTC).date()
    return f"{moment:%H:%M:%S} UTC" if same else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def when(moment: datetime, now: datetime) -> str:
    return f"{moment_of(moment, now)} (in {_roughly(moment - now)})"


def _roughly(span: timedelta) -> str:
    """To the second, the minute or the hour, whichever is fine enough."""
    fine = next((fine for most, fine in _FINE if span < most), timedelta(hours=1))
    return format_duration(max(timedelta(seconds=1), -(-span // fine) * fine))


_FINE = (
    (timedelta(hours=1), timedelta(seconds=1)),
    (timedelta(days=1), timedelta(minutes=1)),
)
