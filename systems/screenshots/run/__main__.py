"""`make run SYSTEM=screenshots`: start the screenshots, print their address, and run them until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from devservices.redis import RedisServer
from devservices.server import NotInstalled, free_port, private_file
from holdfast import Holdfast
from holdfast.contrib.credits import Credits
from systems.common.children import Child
from systems.common.running import (
    child_environment,
    data_line,
    find_database,
    keep_up,
    migrate,
    page_key,
    page_line,
    parser_for,
    python,
    run_system,
    start_all,
    stop_all,
    workers,
)
from systems.common.servers import kept_up
from systems.screenshots.run.chromium import ensure_chromium
from systems.screenshots.settings import Settings

OWNER, CREDITS = "user:demo", 100
_APP = "systems.screenshots.app:app"
_KEYS = {"demo.key": "owner", "operator.key": "operator"}


def main() -> int:
    parser = parser_for("python -m systems.screenshots.run", __doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--no-redis", action="store_true", help="let the database dispatch jobs")
    return run_system(parser.parse_args(), _run)


def _run(options: argparse.Namespace, stopped: threading.Event) -> int:
    ensure_chromium(os.environ)
    data: Path = options.data.resolve()
    data.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        database = find_database(stack, data, "screenshots.db", options.store)
        redis = os.environ.get("REDIS_URL", "")
        if not redis and not options.no_redis:
            redis = stack.enter_context(private_redis(data / "redis"))
        pages = free_port()
        environment = _environment(data, database, redis, pages)
        Settings.read(environment)  # so that an invalid setting is reported once, not by each child
        worker, metrics = workers(_APP, environment, options.workers)
        children = [*_children(options, environment, pages), worker]
        stack.callback(stop_all, children, within=2.0)
        migrate(_APP, environment)
        key = asyncio.run(_make_keys(data, database["DATABASE_URL"]))
        address = start_all(children, children[1])
        _say(address, key, options.data, pages, metrics, redis=bool(redis))
        print(data_line(data, "pictures"))
        print("  to stop    Ctrl-C", flush=True)
        keep_up(children, stopped)
    return 0


@contextlib.contextmanager
def private_redis(folder: Path) -> Iterator[str]:
    """Run Redis in *folder*, and yield its address with the password, or "" where Redis is not installed.

    The file `url` in the folder holds the address too, for redis-cli.
    """
    try:
        server = RedisServer(folder)
    except NotInstalled:
        yield ""
        return
    with kept_up(server, stop_within=1.0):
        private_file(folder / "url", server.url())
        try:
            yield server.url()
        finally:
            for secret in ("url", "redis.conf", "password"):
                (folder / secret).unlink(missing_ok=True)


def _children(options: argparse.Namespace, environment: Mapping[str, str], pages: int) -> list[Child]:
    """Return the sample pages and the API, in this order."""
    place = ("--host", options.host, "--port", str(options.port))
    return [
        python("pages", environment, "systems.screenshots.samples", "--port", str(pages), says_ready=True),
        python("web", environment, "systems.screenshots.web", *place, says_ready=True),
    ]


def _environment(data: Path, database: Mapping[str, str], redis: str, pages: int) -> dict[str, str]:
    defaults = {"IMAGES_DIR": str(data / "images"), "SAMPLES_URL": f"http://127.0.0.1:{pages}"}
    # The sample pages are on this machine, so their address is allowed although it is not public.
    allowed = " ".join(filter(None, (os.environ.get("SCREENSHOTS_ALLOW"), f"127.0.0.1:{pages}")))
    return child_environment(defaults, {**database, "REDIS_URL": redis, "SCREENSHOTS_ALLOW": allowed})


async def _make_keys(data: Path, url: str) -> str:
    """Write the missing keys to *data*, readable only by the folder's owner, and grant the demo's credits.

    Return a key for the page.
    """
    async with Holdfast(url, extensions=[Credits()]) as app:
        for name, role in _KEYS.items():
            file = data / name
            known = file.read_text().strip() if file.exists() else ""
            if known and await app.keys.find(known):
                continue
            owner = OWNER if role == "owner" else None
            private_file(file, (await app.keys.create(role, owner=owner, name=f"make run ({role})"))[1])
        await Credits.of(app).grant(OWNER, CREDITS, source="demo", id="make-run")
        return await page_key(app, OWNER)


def _say(address: str, page_key: str, shown: Path, pages: int, metrics: str, *, redis: bool) -> None:
    shots, key = f"{address}/api/v1/screenshots", '-H "authorization: bearer $KEY"'
    admin, operator = f"{address}/api/v1/admin", '-H "authorization: bearer $OPERATOR"'
    body = f'{{"url": "http://127.0.0.1:{pages}/article", "format": "png", "fullPage": true}}'
    print(f"ready: {address}")
    print(page_line(address, page_key))
    print(f"  the keys   export KEY=$(cat {shown / 'demo.key'}) OPERATOR=$(cat {shown / 'operator.key'})")
    print(f"  a picture  curl {key} -d '{body}' {shots}")
    print(f"             curl {key} {shots}; curl {key} -o picture.png {shots}/ID/image")
    print(f"  again      curl {key} -X POST {shots}/ID/retry; curl {key} {shots}/ID/audit")
    print(f"  credits    curl {key} {address}/api/v1/credits")
    print(f"  operators  curl {operator} {admin}/workers/status; curl {operator} {admin}/analytics")
    print(f"{metrics} (the worker); curl {operator} {address}/metrics (the API)")
    print(f"  samples    http://127.0.0.1:{pages}/ (article, colours, long)")
    how = "Redis" if redis else "the database; with redis-server installed, or REDIS_URL, by Redis"
    print(f"  dispatch   jobs are dispatched by {how}")


if __name__ == "__main__":
    sys.exit(main())
