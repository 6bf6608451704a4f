"""The API against its own document, by schemathesis: all its checks, and walks along the links, on a real server with a worker.

It is a process of its own beside the server, with a fixed seed. HOLDFAST_SCHEMA_EXAMPLES=100 makes it search for longer.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Every, Holdfast, Retry
from holdfast.engine.access import Role
from holdfast.errors import UnknownKey
from holdfast.server.links import LINKS
from holdfast.server.routes import document
from holdfast.server.run import listen, served
from tests.server.world import API, House

pytestmark = pytest.mark.anyio

ALL = "examples,coverage,fuzzing,stateful"
EXAMPLES = int(os.environ.get("HOLDFAST_SCHEMA_EXAMPLES", "0"))
ROOT = Path(__file__).parents[2]
#: One check is replaced by our own, which knows our codes. Streams do not end: tests/server/test_stream.py reads them.
CONFIG = """
hooks = "tests.server.schema_hooks"
seed = 1
continue-on-failure = true
request-timeout = 20.0
headers = {{ Authorization = "Bearer {secret}" }}
warnings = false

[checks]
positive_data_acceptance.enabled = false
negative_data_rejection.expected-statuses = [
    "400", "401", "403", "404", "405", "409", "410", "412", "413", "415", "422", "429",
]

[generation]
max-examples = {examples}
database = "none"

[phases]
stateful = {{ max-steps = 8, generation = {{ max-examples = {walks} }} }}

[[operations]]
include-path-regex = "/stream$"
enabled = false

[[operations]]
include-path = "/api/v1/health"
checks.not_a_server_error.expected-statuses = ["200", "401", "4xx", "503"]
"""


def _shop(url: str) -> Holdfast:
    app = Holdfast(url, poll="50ms")

    @app.schedule(Every("1d"), args={"pdf": "a.pdf"})
    @app.task(queue="press", depends_on="gateway", retry=Retry(3))
    async def convert(pdf: str, mapping: str = "jats") -> str:
        if mapping == "none":
            raise ValueError("no such mapping")
        return f"{pdf}:{mapping}"

    return app


@asynccontextmanager
async def _house(url: str) -> AsyncIterator[tuple[str, int]]:
    """A server with every kind of thing in it, and a worker: its key and its port."""
    app = _shop(url)
    async with app:
        listening = listen("127.0.0.1", 0)
        async with served(app, listening, "127.0.0.1", rate=None) as server:
            house = House(app, server.site)
            secret = await house.key(Role.ADMIN)
            [ours] = await app.keys.list()
            _keep(app, ours.id)
            for _ in range(3):
                await house.dead()
                await house.enqueue()
            await app.breakers.open("gateway", by="the test")
            await app.breakers.close("gateway", by="the test")
            working = asyncio.create_task(app.run_worker())
            try:
                yield secret, listening.getsockname()[1]
            finally:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)


def _keep(app: Any, key_id: str) -> None:
    """Its own key is not for it to end: everything after that would only be told 401."""
    for verb in ("revoke", "rotate"):
        setattr(app.keys, verb, _unless(key_id, getattr(app.keys, verb)))


def _unless(key_id: str, verb: Any) -> Any:
    async def guarded(given: str, **options: Any) -> Any:
        if given == key_id:
            raise UnknownKey(given)
        return await verb(given, **options)

    return guarded


async def _run(folder: Path, url: str, phases: str, examples: int, walks: int) -> None:
    async with _house(url) as (secret, port):
        config = folder / "schemathesis.toml"
        config.write_text(CONFIG.format(secret=secret, examples=examples, walks=walks))
        command = [str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(config), "run"]
        where = f"http://127.0.0.1:{port}{API}/openapi.json"
        options = ["--phases", phases, "--no-color", "--max-failures", "20"]
        process = await asyncio.create_subprocess_exec(
            *command,
            where,
            *options,
            cwd=folder,
            env=os.environ
            | {"PYTHONPATH": str(ROOT), "HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis")},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            told, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        report = told.decode()
        if EXAMPLES:
            print(report)
        assert process.returncode == 0, report[-20_000:]
        assert "No failures" in report or "passed" in report.lower(), report[-2000:]


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_the_api_is_as_its_document_says_on_sqlite(tmp_path: Path, sqlite_url: str) -> None:  # E66
    phases = ALL if EXAMPLES else "examples,coverage"
    await _run(tmp_path, sqlite_url, phases, EXAMPLES or 3, EXAMPLES or 6)


@pytest.mark.service
@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_the_api_is_as_its_document_says_on_postgresql(
    tmp_path: Path, postgres_url: str
) -> None:  # E66
    phases = ALL if EXAMPLES else "fuzzing,stateful"
    await _run(tmp_path, postgres_url, phases, EXAMPLES or 3, EXAMPLES or 6)


def test_links_lead_from_what_is_told_to_what_can_be_asked() -> None:  # E66
    told = document()
    operations = {
        operation["operationId"]: operation for path in told["paths"].values() for operation in path.values()
    }
    for source, links in LINKS.items():
        for link in links:
            assert link.status in operations[source]["responses"]
            for target in link.leads_to:
                names = {one["name"] for one in operations[target]["parameters"]}
                assert link.parameter in names, (source, target)
    made = ("/jobs/{", "/operations/{", "/keys/{", "/webhooks/{")
    steered = {
        operation["operationId"]
        for path, methods in told["paths"].items()
        for operation in methods.values()
        if path.startswith(tuple(f"{API}{one}" for one in made)) and not path.endswith("stream")
    }
    reached = {target for links in LINKS.values() for link in links for target in link.leads_to}
    assert steered <= reached  # a new route is walked to as well
