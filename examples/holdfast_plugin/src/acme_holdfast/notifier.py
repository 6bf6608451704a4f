"""A notifier: called at least once for each event that holdfast.toml names, after its commit."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.plugins import Notice

PAGES = Path("acme-pages.jsonl")


async def page(notice: Notice) -> None:
    """Page the person on call. The page has the event's id, so that the pager shows a repeated page once."""
    text = f"{notice.task} {notice.kind}: {notice.meta.get('error_code', 'no error code')}"
    _send({"incident": notice.id, "job": notice.job_id, "text": text})


def _send(incident: dict[str, object]) -> None:
    """Write the page to a file. This stands for a request to the pager."""
    with PAGES.open("a") as file:
        file.write(json.dumps(incident) + "\n")
