"""An app that was used before its process forked, as servers that load an app before they fork do (`gunicorn --preload`)."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.apps import Database

PROGRAM = """
import asyncio, json, os, sys
from holdfast import Holdfast, StoreError
url, how = sys.argv[1:]
app = Holdfast(url)
sync = app.sync

@app.task
async def ship(order: int) -> int:
    return order

def attempt(call):
    try:
        return str(call())
    except StoreError as error:
        return f"refused: {error}"

def use():
    return [
        attempt(lambda: bool(ship.enqueue_sync(1).id)),
        attempt(lambda: asyncio.run(enqueue())),
        attempt(lambda: sync.jobs.counts()["failed"]),
        attempt(lambda: app.sync.outbox.publish("orders", {}) != ""),
    ]

async def enqueue():
    return bool((await ship.enqueue(2)).id)

asyncio.run(app.migrate())
app.topic("orders", to="memory://")
before = use()
if how == "closed":
    app.sync.close()
ended, ends = os.pipe()
child = os.fork()
if child == 0:
    if how == "orphan":
        os.close(ends)
        os.read(ended, 1)  # returns when the parent is gone
    print(json.dumps({"child": use()}), flush=True)
    sys.exit()
if how != "orphan":
    _, status = os.waitpid(child, 0)
    print(json.dumps({"before": before, "after": use(), "status": status}))
"""
FINE = ["True", "True", "0", "True"]


def run(db: Database, how: str) -> dict[str, Any]:
    """Run the program; what it and its child have printed. It ends when both have ended, as both hold its output."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM, db.url, how],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    said: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        said |= json.loads(line)
    return said


@pytest.mark.parametrize("how", ["waits", "orphan"])
def test_a_forked_process_never_writes_to_a_file_that_was_open_before(
    db: Database, how: str
) -> None:  # E5 E49
    said = run(db, how)
    if db.is_postgres:
        assert said["child"] == FINE
    else:
        assert all(answer.startswith("refused: ") for answer in said["child"])
        assert "app.sync.close()" in said["child"][0]
    used = (1 if how == "orphan" else 2) + db.is_postgres
    assert db.count("job") == 2 * used  # of each use the two that were acknowledged
    if how == "waits":
        assert (said["before"], said["after"], said["status"]) == (FINE, FINE, 0)


def test_a_forked_process_may_use_an_app_that_was_closed_before(db: Database) -> None:  # E5 E49
    said = run(db, "closed")
    assert (said["before"], said["child"], said["after"], said["status"]) == (FINE, FINE, FINE, 0)
    assert db.count("job") == 6
