"""The generated part of the Python client: current, complete, and answered by the live API as its types say."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

from holdfast.client import Client, calls
from holdfast.client.call import Call, StreamCall
from tests.client.operations import uses
from tests.client.world import Live

ROOT = Path(__file__).resolve().parents[2]
CALLS = {name for name, made in vars(calls).items() if inspect.isfunction(made) and name != "part"}
STREAMS = {"stream_events", "stream_job_events"}


def test_what_is_made_from_the_api_is_current() -> None:  # E69
    """In a process of its own: tasks that other tests have declared are not part of it."""
    checked = subprocess.run(
        [sys.executable, "-m", "tools.openapi", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr


def test_every_call_is_answered_as_its_types_say(live: Live) -> None:  # E69
    used = set()
    with Client(live.url, key=live.key) as client:
        for use in uses(client, live):
            call: Call[Any] = getattr(calls, use.name)(*use.path, **use.given)
            answer = client.exchange(call)  # a body that is not as its type says would be a `BadAnswer`
            kind = call.answers[answer.status]
            assert answer.value is None if kind is None else isinstance(answer.value, _plain(kind)), use
            used.add(use.name)
    assert used == CALLS - STREAMS


def test_every_stream_is_a_call_of_its_own_kind() -> None:
    assert isinstance(calls.stream_events(kind="failed"), StreamCall)
    assert isinstance(calls.stream_job_events("x"), StreamCall)


def _plain(kind: Any) -> Any:
    return dict if kind == dict[str, Any] else kind
