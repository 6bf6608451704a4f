"""Health from end to end (E65): a store in trouble is told as such, by the app, by HTTP and by `doctor`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import httpx2
import pytest

from holdfast import Holdfast, StoreUnavailable
from holdfast.cli.doctor import breaker_findings, pause_findings
from holdfast.engine.tables.dependencies import dependency_states
from holdfast.engine.tables.holds import holds_in_force
from holdfast.health import inputs as health_inputs
from holdfast.health.judgement import Level, Thresholds
from holdfast.server import api
from tests.apps import working


@asynccontextmanager
async def client(app: Holdfast) -> AsyncIterator[httpx2.AsyncClient]:
    site = httpx2.ASGITransport(app=api(app, without_key="loopback"), client=("127.0.0.1", 5000))
    async with httpx2.AsyncClient(transport=site, base_url="http://127.0.0.1") as asking:
        yield asking


async def test_jobs_without_a_worker_are_told_as_a_failure(app: Holdfast) -> None:  # E65
    @app.task(queue="mail")
    async def send() -> None: ...

    async with app:
        assert (await app.health()).level is Level.PASS
        await send.enqueue_many([{}] * 3)
        health = await app.health(Thresholds(queue_depth=3))
        levels = {check.name: check.level for check in health.checks}
        assert health.level is levels["workers"] is Level.FAIL
        assert levels["queue_depth"] is Level.WARN
        async with client(app) as asking:
            answer = await asking.get("/api/v1/health")
            assert answer.status_code == 503
            assert answer.json()["status"] == "fail"
            async with working(app):
                async with asyncio.timeout(20):
                    while answer.status_code != 200:
                        answer = await asking.get("/api/v1/health")
            assert answer.json()["status"] == "pass"


async def test_an_open_breaker_and_a_pause_are_told_everywhere(app: Holdfast) -> None:  # E65
    @app.task(queue="mail", depends_on="gateway")
    async def send() -> None: ...

    async with app:
        await send.enqueue()
        await app.queues.pause("mail", duration="1h", reason="new certificates", by="ada")
        await app.breakers.open("gateway", duration="1h")
        store = (await app.runtime.engine()).store
        checks = {check.name: check for check in (await app.health()).checks}
        [paused] = pause_findings(await holds_in_force(store))
        [stopped] = breaker_findings(await dependency_states(store))
    assert (checks["pauses"].level, checks["pauses"].seen) == (Level.PASS, ["queue mail"])
    assert (checks["breakers"].level, checks["breakers"].seen) == (Level.WARN, ["gateway"])
    assert checks["oldest_wait"].level is Level.PASS
    assert (paused.level, stopped.level) == ("warning", "warning")
    assert "queue mail is held until" in paused.text
    assert "by ada (new certificates)" in paused.text
    assert "the breaker of gateway is open" in stopped.text


async def test_lost_and_stuck_attempts_are_counted(app: Holdfast) -> None:  # E65
    @app.task(stuck_after="1ms")
    async def slow() -> None: ...

    async with app:
        await slow.enqueue_many([{}] * 2)
        store = (await app.runtime.engine()).store
        session = await store.open_session("w", timedelta(minutes=1))
        assert len(await store.claim(session, [slow.lane], 2)) == 2
        await asyncio.sleep(0.01)
        assert {c.name: c.seen for c in (await app.health()).checks}["stuck"] == 2
        await store.close_session(session)
        seen = {c.name: c.seen for c in (await app.health()).checks}
    assert (seen["stuck"], seen["lost_leases"]) == (0, 2)


async def test_the_doors_for_processes_answer_without_a_key(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:  # E65
    monkeypatch.setattr(health_inputs, "READY_WITHIN", 20.0)
    async with app:
        site = httpx2.ASGITransport(app=api(app))
        async with httpx2.AsyncClient(transport=site, base_url="http://127.0.0.1") as asking:
            assert (await asking.get("/livez")).text == "alive\n"
            assert (await asking.get("/readyz")).text == "ready\n"
            assert (await asking.get("/metrics")).status_code == 401
            assert (await asking.get("/api/v1/health")).status_code == 401

            async def away(*_: object, **__: object) -> None:
                raise StoreUnavailable("cannot reach postgresql://me:hunter2@db")

            store = (await app.runtime.engine()).store
            store.transact = away  # type: ignore[method-assign,assignment]
            answer = await asking.get("/readyz")
            assert (answer.status_code, answer.text) == (503, "the database does not answer\n")


async def test_the_servers_metrics_count_what_it_has_enqueued(app: Holdfast) -> None:  # E62
    @app.task(queue="mail")
    async def send(to: str) -> None: ...

    async with app, client(app) as asking:
        made = await asking.post("/api/v1/jobs", json={"task": "send", "args": {"to": "ann"}})
        assert made.status_code == 201
        named = {"Idempotency-Key": "once-4711"}
        for _ in range(2):
            made = await asking.post(
                "/api/v1/jobs", json={"task": "send", "args": {"to": "bob"}}, headers=named
            )
            assert made.status_code == 201
        answer = await asking.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert 'jobs_created_total{queue="mail",task="send"} 2.0' in answer.text
    assert 'holdfast_queue_depth{queue="mail"} 2.0' in answer.text


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/api/v1/health"])
async def test_they_only_look(app: Holdfast, path: str) -> None:  # E65
    async with app, client(app) as asking:
        assert (await asking.post(path)).status_code == 405
