"""The thread behind plain calls: it ends when it is told, when its app is gone, and is opened anew when it is needed."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import pytest

from holdfast import Holdfast


def used(url: str) -> tuple[Holdfast, threading.Thread]:
    """An app whose plain calls were used, and the thread that they have opened."""
    before = set(threading.enumerate())
    app = Holdfast(url)
    assert app.sync.jobs.counts()["queued"] == 0
    [thread] = [one for one in set(threading.enumerate()) - before if one.name == "holdfast-portal"]
    return app, thread


def test_plain_calls_can_be_closed_and_the_next_one_opens_them_anew(tmp_path: Path) -> None:
    app, thread = used(f"sqlite:///{tmp_path}/jobs.db")
    app.sync.close()
    assert not thread.is_alive()
    assert app.sync.jobs.counts()["queued"] == 0
    app.sync.close()
    app.sync.close()


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/jobs.db"])
def test_the_thread_of_an_app_that_nobody_has_any_more_ends(url: str, tmp_path: Path) -> None:
    app, thread = used(url.format(tmp_path))
    del app
    gc.collect()
    assert not thread.is_alive()


def test_it_ends_also_when_the_garbage_is_collected_in_that_very_thread() -> None:
    app, thread = used("memory://")
    loop = app.runtime.portal._loop
    gc.disable()
    try:
        del app
        loop.call_soon_threadsafe(gc.collect)
        thread.join(10)
    finally:
        gc.enable()
    assert not thread.is_alive()
    assert loop.is_closed()
