"""A notifier: is called for every event that holdfast.toml names, after it was committed, at least once."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast import Notice

PAGES = Path("acme-pages.jsonl")


async def page(notice: Notice) -> None:
    """Page who is on call. The event's id goes along: the pager shows two pages of one event as one."""
    text = f"{notice.task} {notice.kind}: {notice.meta.get('error_code', 'no error code')}"
    _send({"incident": notice.id, "job": notice.job_id, "text": text})


def _send(incident: dict[str, object]) -> None:
    """Stands for a request to the pager; with an async HTTP client it would be awaited."""
    with PAGES.open("a") as file:
        file.write(json.dumps(incident) + "\n")
