"""`app.sync`: each namespace of an app has its verbs there too, with their arguments, and without `await`."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from holdfast import Holdfast, UnknownJob

#: It runs until it is cancelled, and nothing could cancel it from sync code.
LEFT_OUT = {"run_relay"}


def verbs(namespace: object) -> set[str]:
    """Return the names of the public coroutine functions of a namespace."""
    members = inspect.getmembers(type(namespace), inspect.iscoroutinefunction)
    return {name for name, _ in members if not name.startswith("_")} - LEFT_OUT


def test_each_verb_of_an_app_is_there_and_no_other() -> None:
    app = Holdfast("memory://")
    found = 0
    for name, plain in vars(app.sync).items():
        if name.startswith("_"):
            continue
        wanted = verbs(getattr(app, name))
        assert {verb for verb in dir(plain) if not verb.startswith("_")} == wanted, name
        for verb in wanted:
            there, namespace = getattr(type(plain), verb), type(getattr(app, name))
            assert not inspect.iscoroutinefunction(there)
            # A verb with a sync twin is called in the thread of the caller, which a connection that is given needs.
            assert inspect.unwrap(there) is getattr(namespace, f"{verb}_sync", getattr(namespace, verb))
            assert (
                inspect.signature(there).parameters == inspect.signature(getattr(namespace, verb)).parameters
            )
        found += len(wanted)
    assert found > 60


def test_a_plain_call_passes_its_arguments_returns_the_answer_and_raises_the_error(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    async def work(number: int) -> None: ...

    job = work.enqueue_sync(1)
    assert app.sync.jobs.get(job.id).payload == {"number": 1}
    assert [row.id for row in app.sync.jobs.list(state="queued", limit=1).rows] == [job.id]
    with pytest.raises(UnknownJob):
        app.sync.jobs.get("019a8f6e-2a53-7cc1-9d0e-5f1c7a0b3d42")
    with pytest.raises(TypeError):
        app.sync.jobs.get(number=1)  # type: ignore[call-arg]
    app.sync.close()
