"""`make run SYSTEM=screenshots`: start the screenshots, say where they are, keep them up, and stop it all when Ctrl-C is pressed."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from holdfast import Holdfast
from systems.common.children import Child
from systems.common.running import (
    around,
    find_database,
    free_port,
    keep_up,
    migrate,
    parser_for,
    private_file,
    python,
    run_system,
    say_data,
    start_all,
    stop_all,
    workers,
)
from systems.screenshots.run.chromium import see_to_chromium
from systems.screenshots.run.redis import is_installed, private_redis
from systems.screenshots.settings import Settings

OWNER, CREDITS = "user:demo", 100
_APP = "systems.screenshots.app:app"
_KEYS = {"demo.key": "owner", "operator.key": "operator"}


def main() -> int:
    parser = parser_for("python -m systems.screenshots.run", __doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--no-redis", action="store_true", help="the database hands out jobs itself")
    return run_system(parser.parse_args(), _run)


def _run(given: argparse.Namespace, stopped: threading.Event) -> int:
    see_to_chromium(os.environ)  # or it is told how to get one
    data: Path = given.data.resolve()
    data.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        database = find_database(stack, data, "screenshots.db", given.store)
        redis = os.environ.get("REDIS_URL", "")
        if not redis and not given.no_redis and is_installed():
            redis = stack.enter_context(private_redis(data / "redis"))
        pages = free_port()
        environment = _environment(data, database, redis, pages)
        Settings.read(environment)  # what cannot be read is told once, here
        worker, metrics = workers(_APP, environment, given.workers)
        children = [*_children(given, environment, pages), worker]
        stack.callback(stop_all, children, within=2.0)
        migrate(_APP, environment)
        asyncio.run(_make_keys(data, database["DATABASE_URL"]))
        address = start_all(children, children[1])
        _say(address, data, given.data, pages, metrics, redis=bool(redis))
        keep_up(children, stopped)
    return 0


def _children(given: argparse.Namespace, environment: Mapping[str, str], pages: int) -> list[Child]:
    """The pages and the API, in this order."""
    place = ("--host", given.host, "--port", str(given.port))
    return [
        python("pages", environment, "systems.screenshots.samples", "--port", str(pages), says_ready=True),
        python("web", environment, "systems.screenshots.web", *place, says_ready=True),
    ]


def _environment(data: Path, database: Mapping[str, str], redis: str, pages: int) -> dict[str, str]:
    defaults = {"IMAGES_DIR": str(data / "images")}
    # The sample pages are on this machine: the one place that is open although it is not public.
    allowed = " ".join(filter(None, (os.environ.get("SCREENSHOTS_ALLOW"), f"127.0.0.1:{pages}")))
    return around(defaults, {**database, "REDIS_URL": redis, "SCREENSHOTS_ALLOW": allowed})


async def _make_keys(data: Path, url: str) -> None:
    """The keys of this folder, made the first time and readable by its owner alone; the owner's comes with credits."""
    async with Holdfast(url) as app:
        for name, role in _KEYS.items():
            file = data / name
            known = file.read_text().strip() if file.exists() else ""
            if known and await app.find_key(known):
                continue
            owner = OWNER if role == "owner" else None
            private_file(file, (await app.create_key(role, owner=owner, name=f"make run ({role})"))[1])
        await app.credits.grant(OWNER, CREDITS, source="demo", id="make-run")


def _say(address: str, data: Path, shown: Path, pages: int, metrics: str, *, redis: bool) -> None:
    shots, key = f"{address}/api/v1/screenshots", '-H "authorization: bearer $KEY"'
    admin, operator = f"{address}/api/v1/admin", '-H "authorization: bearer $OPERATOR"'
    body = f'{{"url": "http://127.0.0.1:{pages}/article", "format": "png", "fullPage": true}}'
    print(f"ready: {address}")
    print(f"  the keys   export KEY=$(cat {shown / 'demo.key'}) OPERATOR=$(cat {shown / 'operator.key'})")
    print(f"  a picture  curl {key} -d '{body}' {shots}")
    print(f"             curl {key} {shots}; curl {key} -o picture.png {shots}/ID/image")
    print(f"  again      curl {key} -X POST {shots}/ID/retry; curl {key} {shots}/ID/audit")
    print(f"  credits    curl {key} {address}/api/v1/credits")
    print(f"  operators  curl {operator} {admin}/workers/status; curl {operator} {admin}/analytics")
    print(f"{metrics} (the worker); curl {operator} {address}/metrics (the API)")
    print(f"  samples    http://127.0.0.1:{pages}/ (article, colours, long)")
    how = "Redis" if redis else "the database; with redis-server installed, or REDIS_URL, by Redis"
    print(f"  dispatch   jobs are handed out by {how}")
    print(say_data(data, "pictures"))
    print("  to stop    Ctrl-C", flush=True)


if __name__ == "__main__":
    sys.exit(main())
