"""A Celery app as anybody has it, with one line for Holdfast: for test_celery_plugin."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from celery import Celery

from holdfast.celery import report

app = Celery("shop", broker=os.environ["BROKER_URL"], set_as_current=False)
app.conf.update(
    task_default_queue="shop.tasks", task_ignore_result=True, broker_connection_retry_on_startup=True
)
report(app, secret=os.environ["CALLBACK_SECRET"], queue="shop.callback", tasks=["shop.ship"])


@app.task(name="shop.ship", bind=True, max_retries=1)  # type: ignore[untyped-decorator]
def ship(self: Any, order: int) -> dict[str, int]:
    if order == 2:
        raise ValueError("no such order")
    if order == 3 and not self.request.retries:
        raise self.retry(countdown=0, exc=OSError("once more"))
    return {"parcel": order * 100}


@app.task(name="shop.note")  # type: ignore[untyped-decorator]
def note(file: str) -> None:
    """One that reports nothing."""
    Path(file).touch()
