"""What the workers of a race run: the real app, with an easel whose pictures come by chance. For `racing`."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

from systems.screenshots.codes import Code
from systems.screenshots.failures import ShotFailed
from systems.screenshots.shot import Picture, Shot
from tests.systems.screenshots.api.world import World

POLICIES = """
[tasks.SCREENSHOT]
max_attempts = 3
backoff = { base = "100ms", factor = 4, jitter = "full" }
stuck_after = "150ms"
"""
HANGS_SECONDS = 0.4


class Chance:
    """Fails, hangs for a while or succeeds; how often it was asked is its own count on disk, a byte each."""

    def __init__(self, seed: int, runs: Path) -> None:
        self._random, self._runs = random.Random(seed), runs

    async def shoot(self, shot: Shot) -> Picture:
        with self._runs.open("ab") as runs:
            runs.write(b".")
        match self._random.choices(("fail", "bad", "hang", "take"), (50, 20, 10, 20))[0]:
            case "fail":
                # A page that is down ten times in a row is held for half a minute; a crash says nothing of the page.
                raise ShotFailed(Code.BROWSER_CRASHED)
            case "bad":
                raise ShotFailed(Code.SELECTOR_NOT_FOUND)
            case "hang":
                await asyncio.sleep(HANGS_SECONDS)
        return Picture(data=b"x", format="png", width=1, height=1, url=shot.url, status=200)


def make_world(folder: Path, database_url: str, seed: int) -> World:
    return World(
        folder,
        database_url,
        Chance(seed, folder / f"runs-{seed}"),
        policies=POLICIES,
        worker_lease_ttl_sec=2,
        worker_max_crashes=1000,
        worker_concurrency=8,
        options={"heartbeat": "500ms", "stuck_every": "1s"},  # people are to find some first
    )


def __getattr__(name: str) -> object:
    """`holdfast worker tests.systems.screenshots.api.racer:app`, made when it is asked for."""
    if name != "app":
        raise AttributeError(name)
    where = os.environ
    world = make_world(Path(where["RACE_FOLDER"]), where["DATABASE_URL"], int(where["RACE_SEED"]))
    return world.app
