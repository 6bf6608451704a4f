"""Overrides in processes that run: a real worker follows them without a restart, and keeps the last known ones in an outage."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest

from devservices.proxy import Proxy
from holdfast import Holdfast
from holdfast.engine import override_feed
from holdfast.maintenance.tasks import Maintenance
from holdfast.server.run import listen, served
from tests.apps import new_app, until, working

pytestmark = pytest.mark.anyio

APP = """
import os
from holdfast import Holdfast, Limits, Retry
app = Holdfast(os.environ["SHOP_URL"], poll="50ms")

@app.task(retry=Retry(2))
async def attempts() -> int:
    return app.tasks["attempts"].policy.retry.max_attempts

@app.task(limits=Limits(rate="1/h"))
async def limited() -> str:
    return "ran"
"""


@pytest.mark.slow
async def test_a_real_worker_changes_its_attempts_and_its_rate_without_a_restart(
    database_url: str, tmp_path: Path
) -> None:  # E10 E26
    (tmp_path / "shop.py").write_text(dedent(APP))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "SHOP_URL": database_url}
    worker = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "worker", "shop:app"],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    app = new_app(database_url)

    @app.task
    async def attempts() -> int:
        return 0

    @app.task
    async def limited() -> str:
        return ""

    try:
        async with app:
            assert await (await attempts.enqueue()).result(timeout="60s") == 2
            assert await (await limited.enqueue()).result(timeout="60s") == "ran"
            waiting = await limited.enqueue()
            await app.policies.set("tasks.attempts.max_attempts", 7, by="ann")
            await app.policies.set("tasks.limited.limits.rate", "1000/s", by="ann")
            assert await waiting.result(timeout="60s") == "ran"
            async with asyncio.timeout(60):
                while await (await attempts.enqueue()).result(timeout="60s") != 7:
                    pass
            await app.policies.unset("tasks.attempts.max_attempts")
            async with asyncio.timeout(60):
                while await (await attempts.enqueue()).result(timeout="60s") != 2:
                    pass
        assert worker.poll() is None
    finally:
        worker.terminate()
        _, said = worker.communicate(timeout=30)
    assert said.count("policy_override.applied") >= 2
    assert worker.returncode == 0


def an_app(url: str) -> Holdfast:
    app = new_app(url)

    @app.task
    async def email() -> None: ...

    return app


def attempts_of(app: Holdfast) -> int:
    return app.tasks["email"].policy.retry.max_attempts


@pytest.mark.service
async def test_while_the_store_is_down_the_last_known_overrides_stay_in_force(
    postgres_url: str,
    postgres_proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # E10 E50
    monkeypatch.setattr(override_feed, "LOOK_EVERY", 0.02)
    app, operator = an_app(postgres_proxy.route(postgres_url)), an_app(postgres_url)

    async def unread() -> int:
        return caplog.text.count("policy_override.unread")

    async with operator, app:
        await operator.policies.set("tasks.email.max_attempts", 7)
        following = asyncio.create_task(override_feed.follow_overrides(await app.runtime.engine()))
        await until(lambda: has_attempts(app, 7))
        postgres_proxy.refuse = True
        postgres_proxy.reset()
        await until(unread)
        await operator.policies.set("tasks.email.max_attempts", 8)
        assert attempts_of(app) == 7
        postgres_proxy.heal()
        await until(lambda: has_attempts(app, 8))
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert await unread() == 1


async def has_attempts(app: Holdfast, number: int) -> bool:
    return attempts_of(app) == number


async def test_workers_maintenance_and_servers_follow_overrides(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # E10
    monkeypatch.setattr(override_feed, "LOOK_EVERY", 0.02)
    operator, *others = (an_app(database_url) for _ in range(4))
    worker, maintenance, server = others
    async with operator, worker, maintenance, server, working(worker, maintenance=False):
        maintaining = asyncio.create_task(maintenance.run_maintenance())
        with listen("127.0.0.1", 0) as listening:
            async with served(server, listening, "127.0.0.1", no_auth=True, rate=None):
                await operator.policies.set("tasks.email.max_attempts", 7, lasts="2s")
                for number in (7, 5):
                    for app in others:
                        await until(partial(has_attempts, app, number))
        maintaining.cancel()
        await asyncio.gather(maintaining, return_exceptions=True)


async def test_maintenance_records_the_end_of_overrides(sqlite_url: str) -> None:  # E10
    app = an_app(sqlite_url)
    async with app:
        engine = await app.runtime.engine()
        await app.policies.set("tasks.email.max_attempts", 7, lasts="1us")
        [task] = [one for one in Maintenance(engine).all if one.name == "overrides"]
        await until(task.run)
        [ended] = await app.policies.history()
        assert ended.ended_at == ended.expires_at
