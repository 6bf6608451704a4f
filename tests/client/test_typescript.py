"""The TypeScript client: run by Node against the live API, and checked by the compiler where that is installed."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from devservices.server import NotInstalled
from holdfast.client import Client
from tests.client.operations import uses
from tests.client.test_retries import AWAY, BUSY, PROXY_LOST
from tests.client.world import Doorman, Live
from tests.conftest import installed

HOME = Path(__file__).resolve().parents[2] / "clients" / "typescript"


def found_node() -> str:
    node = shutil.which("node")
    told = subprocess.run([node, "--version"], capture_output=True, text=True).stdout if node else ""
    version = re.match(r"v(\d+)", told)
    if node is None or version is None or int(version[1]) < 20:
        raise NotInstalled("no Node.js of version 20 or newer on this machine: install it")
    return node


@pytest.fixture(scope="module")
def node() -> str:
    return installed(found_node)


def play(node: str, live: Live, scene: str, **given: Any) -> list[Any]:
    """What the scene says, line by line."""
    told = {"url": live.url, "key": live.key, **given}
    done = subprocess.run(
        [node, str(HOME / "tests" / "live.mjs"), scene],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)


def test_every_operation_is_a_method_that_is_answered(node: str, live: Live) -> None:  # E69
    with Client(live.url, key=live.key) as client:
        plan = [{"name": camel(use.name), "given": [*use.path, use.given]} for use in uses(client, live)]
    told = play(node, live, "operations", uses=plan)
    assert [name for name, _ in told] == [one["name"] for one in plan]
    methods = re.findall(r"^  (\w+)\(", (HOME / "operations.js").read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for name, _ in told} == set(methods)
    assert dict(told)["removeWebhook"] == "nothing"
    assert dict(told)["getMetrics"] == "string"


@pytest.mark.parametrize("scene", ["verbs", "refusals"])
def test_the_verbs_and_errors_of_the_client(node: str, live: Live, scene: str) -> None:  # E69
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        play(node, live, scene, closed=taken.getsockname()[1])


def test_in_typescript_too_a_lost_answer_makes_no_second_job(node: str, live: Live) -> None:  # E69
    owner = f"lost-{uuid4()}"
    with live.doorman() as doorman:
        doorman.orders = [Doorman.LOSE, Doorman.LOSE]
        [told] = play(node, live, "lost", url=doorman.url, owner=owner)
    with Client(live.url, key=live.key) as client:
        assert [job.id for job in client.jobs(owner=owner)] == [told["id"]]
    assert len(told["pauses"]) == 2


@pytest.mark.parametrize(
    ("trouble", "named", "done"),
    [
        (BUSY, False, True),
        (AWAY, True, True),
        (AWAY, False, False),
        (PROXY_LOST, True, True),
        (Doorman.LOSE, False, False),
    ],
)
def test_in_typescript_too_only_what_is_safe_is_sent_again(
    node: str, live: Live, trouble: Any, named: bool, done: bool
) -> None:
    webhook = live.do(live.app.webhooks.create_inbound())
    with live.doorman() as doorman:
        doorman.orders = [trouble]
        [told] = play(node, live, "trouble", url=doorman.url, named=named, webhook=webhook.id)
    assert told["done"] is done
    if trouble == BUSY:
        assert 7 <= told["pauses"][0] <= 7.2


def test_in_typescript_too_a_stream_that_is_cut_misses_nothing(node: str, live: Live) -> None:  # E61, E69
    owner, told = f"cut-{uuid4()}", []
    with Client(live.url, key=live.key) as client, live.doorman() as doorman:
        first = client.enqueue("convert", {"pdf": "0"}, owner=owner)
        after = next(client.job_events(first.id)).id
        following = subprocess.Popen(
            [node, str(HOME / "tests" / "live.mjs"), "follow"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert following.stdin is not None
        assert following.stdout is not None
        try:
            with following.stdin as stdin:
                json.dump({"url": doorman.url, "key": live.key, "after": after, "owner": owner}, stdin)
            for number in range(1, 7):
                made = client.enqueue("convert", {"pdf": str(number)}, owner=owner)
                told.append((json.loads(following.stdout.readline()), made.id))
                doorman.orders = [PROXY_LOST] if number == 3 else []
                live.cut(doorman)
        finally:
            following.kill()
            following.wait()
            following.stdout.close()
    assert [one for one, _ in told] == [one for _, one in told]


@pytest.mark.slow
def test_the_types_are_as_the_compiler_wants_them(node: str) -> None:  # E69
    compiler = HOME / "node_modules" / "typescript" / "bin" / "tsc"
    if not compiler.exists():
        pytest.skip("no compiler here: run `npm ci --ignore-scripts` in clients/typescript")
    checked = subprocess.run(
        [node, str(compiler), "--project", str(HOME)], capture_output=True, text=True, timeout=55
    )
    assert checked.returncode == 0, checked.stdout


def test_the_package_lists_all_that_it_needs_and_its_lock_names_no_host() -> None:
    package = json.loads((HOME / "package.json").read_text(encoding="utf-8"))
    there = {path.name for path in HOME.iterdir() if path.suffix == ".js" or path.name.endswith(".d.ts")}
    assert set(package["files"]) == there
    assert "dependencies" not in package
    assert "://" not in (HOME / "package-lock.json").read_text(encoding="utf-8")
