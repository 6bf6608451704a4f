"""Webhooks with real workers and a real endpoint: each message once, signed, tried again, and never in anybody's way."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_structured_event

from holdfast import Conflict, Fatal, Holdfast, State, UsageError
from holdfast.engine.engine import Engine
from holdfast.engine.operation import Progress
from holdfast.engine.tables import bookmarks
from holdfast.errors import BadSignature, TargetNotAllowed, UnknownJob, UnknownWebhook
from holdfast.jobs.job import Event
from holdfast.maintenance.operations import OperationRunner
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.webhooks import table as webhook_table
from holdfast.webhooks.fanout import BOOKMARK, MOST_MESSAGES, Fanout, deliveries
from holdfast.webhooks.job_owners import JobOwners
from holdfast.webhooks.model import Webhook
from holdfast.webhooks.replay import replay_batch
from holdfast.webhooks.selection import TASK
from holdfast.webhooks.signature import sign, write_secret
from tests.apps import ONCE, Database, new_app, until, work, working
from tests.commands import ROOT
from tests.endpoint import ALLOW, Endpoint
from tests.loopback import close


def make_app(url: str, **settings: Any) -> Holdfast:
    app = new_app(url, outbound_allow=ALLOW, **settings)

    @app.task(retry=ONCE, http=True)
    async def convert(name: str) -> str:
        if name == "bad":
            raise Fatal("no such page", code="BAD_PAGE")
        return name

    return app


@pytest.fixture
def app(db: Database) -> Holdfast:
    return make_app(db.url)


@pytest.fixture(autouse=True)
def new_lanes_are_seen_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first message to a webhook waits until workers look for new lanes, every five seconds."""
    monkeypatch.setattr("holdfast.worker.claiming.REFRESH_EVERY", 0.1)


async def sent(app: Holdfast, webhook: Webhook) -> list[Any]:
    """The jobs that tell this webhook."""
    return (await app.jobs.list(tag=f"webhook:{webhook.id}", internal=True, limit=1000)).rows


async def test_the_end_of_a_job_is_told_signed_and_in_an_envelope_that_others_read(
    app: Holdfast,
) -> None:  # E61
    async with app, Endpoint() as endpoint:
        webhook = await app.webhooks.create(endpoint.url)
        await app.tasks["convert"].options(owner="ann").enqueue("a")
        await app.tasks["convert"].enqueue("bad")
        async with working(app):
            messages = await endpoint.until(2)
    assert sorted(endpoint.kinds) == ["complete", "failed"]
    for message in messages:
        message.verify(webhook.secrets[0])
        event = from_structured_event(HTTPMessage(message.headers, message.body))
        data = event.get_data()
        assert isinstance(data, dict)
        assert data["task"] == "convert"
        assert message.id == f"msg_{webhook.id}_{event.get_id()}"
    told = {message.kind: message.event["data"] for message in messages}
    assert told["complete"]["owner"] == "ann"
    assert told["failed"]["meta"]["error_code"] == "BAD_PAGE"


async def test_a_webhook_is_told_of_its_owners_jobs_and_its_kinds_of_events_only(
    app: Holdfast,
) -> None:  # E61
    async with app, Endpoint() as anns, Endpoint() as all_of_it:
        await app.webhooks.create(anns.url, owner="ann", events=["queued", "complete"])
        await app.webhooks.create(all_of_it.url, events="*")
        for owner in ("ann", "bob", None):
            await app.tasks["convert"].options(owner=owner).enqueue("a")
        async with working(app):
            await anns.until(2)
            await all_of_it.until(9)
            await app.tasks["convert"].options(owner="ann").enqueue("b")
            await anns.until(4)
            await all_of_it.until(12)
    assert sorted(anns.kinds) == ["complete", "complete", "queued", "queued"]
    assert {message.event["data"]["owner"] for message in anns.messages} == {"ann"}
    # Nothing of what the telling itself does: that would never end.
    assert {message.event["data"]["task"] for message in all_of_it.messages} == {"convert"}
    assert len(all_of_it.messages) == 12


@pytest.mark.slow
async def test_a_thousand_webhooks_cost_statements_by_the_batch_and_not_by_the_message(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:  # E61
    enqueued: list[int] = []
    calls: list[str] = []
    async with app:
        engine = await app.runtime.engine()
        one = await app.webhooks.create("http://127.0.0.1:8009/", events="queued")
        made = [replace(one, id=f"wh_{n}") for n in range(1000)]
        for start in range(0, 1000, 100):
            await asyncio.gather(*(webhook_table.put(engine.store, one) for one in made[start : start + 100]))
        made.append(one)
        await Fanout(engine).run()  # the bookmark is set
        await app.tasks["convert"].enqueue_many([(f"{n}",) for n in range(10)])
        enqueue, store = engine.enqueue, engine.store

        async def counted(jobs: Any, *rest: Any) -> Any:
            enqueued.append(len(jobs))
            return await enqueue(jobs, *rest)

        def watched(name: str) -> None:
            part = store.queries if name in ("events", "jobs") else store
            method = getattr(part, name)

            async def call(*given: Any, **named: Any) -> Any:
                calls.append(name)
                return await method(*given, **named)

            monkeypatch.setattr(part, name, call)

        monkeypatch.setattr(engine, "enqueue", counted)
        for name in ("transact", "events", "jobs"):
            watched(name)
        await Fanout(engine)._step()
    assert sum(enqueued) == 10 * len(made)  # each event once for each webhook
    assert max(enqueued) <= MOST_MESSAGES  # what is in memory at once is bounded
    assert (len(enqueued), len(calls)) == (3, 7)  # for 10,010 messages


async def test_what_was_before_a_webhook_is_not_told(app: Holdfast) -> None:
    async with app, Endpoint() as endpoint:
        await app.tasks["convert"].enqueue("before")
        await work(app)
        await app.webhooks.create(endpoint.url, events="*")
        handle = await app.tasks["convert"].enqueue("after")
        async with working(app):
            await endpoint.until(3)
    assert {message.event["subject"] for message in endpoint.messages} == {handle.id}


async def test_many_dispatchers_and_one_that_died_make_each_message_once(
    app: Holdfast, db: Database
) -> None:  # E61 E6
    others = [make_app(db.url) for _ in range(3)]
    async with app, Endpoint() as endpoint, others[0], others[1], others[2]:
        webhook = await app.webhooks.create(endpoint.url, events=["queued"])
        handles = await app.tasks["convert"].enqueue_many([(str(n),) for n in range(1200)])
        engine = await app.runtime.engine()
        # As if it had enqueued and died before the bookmark moved.
        before = await bookmarks.get(engine.store, BOOKMARK)
        events = await engine.store.queries.events(after=before or 0, limit=700)
        await engine.enqueue(await deliveries([webhook], events, JobOwners(engine.store.queries.jobs)))
        await asyncio.gather(*[Fanout(await other.runtime.engine()).run() for other in (app, *others)])
        await Fanout(engine).run()
        assert await app.jobs.counts(internal=True) == {
            **await app.jobs.counts(internal=True),
            "queued": 2400,
        }
        rows: list[Any] = []
        after = None
        while True:
            page = await app.jobs.list(task=TASK, limit=1000, after=after)
            rows, after = rows + page.rows, page.next
            if after is None:
                break
        assert len({row.payload["message"] for row in rows}) == len(rows) == len(handles)


async def test_an_endpoint_that_was_down_is_told_when_it_is_up_again(app: Holdfast) -> None:  # E61
    async with app, Endpoint() as endpoint:
        webhook = await app.webhooks.create(endpoint.url)
        await endpoint.stop()
        await app.tasks["convert"].enqueue("a")
        async with working(app):

            async def failed_once() -> bool:
                return any(row.last_failure for row in await sent(app, webhook))

            await until(failed_once)
            [row] = await sent(app, webhook)
            assert (row.state, row.attempt, row.last_failure["code"]) == (State.QUEUED, 1, "NETWORK")
            assert (await app.webhooks.get(webhook.id)).failing_since is not None
            await endpoint.start()
            await app.jobs.retry(row.id)
            [message] = await endpoint.until(1)
            await until(lambda: _complete(app, row.id))
    message.verify(webhook.secrets[0])
    assert (await app.webhooks.get(webhook.id)).failing_since is None
    await app.close()


async def _complete(app: Holdfast, job_id: str) -> bool:
    return (await app.jobs.get(job_id)).state is State.COMPLETE


async def test_every_attempt_of_a_message_has_the_same_id_and_a_time_of_its_own(app: Holdfast) -> None:  # E61
    answers = iter(["500 Oops", "404 Not Found", "302 Found\r\nlocation: /x", "200 OK"])
    async with app, Endpoint(lambda message: next(answers)) as endpoint:
        webhook = await app.webhooks.create(endpoint.url)
        await app.tasks["convert"].enqueue("a")
        async with working(app):
            for count in (1, 2, 3):
                await endpoint.until(count)

                async def waits(count: int = count) -> bool:
                    [row] = await sent(app, webhook)
                    return row.state is State.QUEUED and row.attempt == count

                await until(waits)
                [row] = await sent(app, webhook)
                assert row.last_failure["message"] == f"the endpoint answered {(500, 404, 302)[count - 1]}"
                await app.jobs.retry(row.id)
            await endpoint.until(4)
            await until(lambda: _complete(app, row.id))
    assert len({message.id for message in endpoint.messages}) == 1
    for message in endpoint.messages:
        message.verify(webhook.secrets[0])


async def test_an_endpoint_that_is_gone_is_disabled_and_enabling_begins_anew(app: Holdfast) -> None:  # E61
    async with app, Endpoint(lambda message: "410 Gone") as endpoint:
        webhook = await app.webhooks.create(endpoint.url)
        await app.tasks["convert"].enqueue("a")
        async with working(app):
            await endpoint.until(1)

            async def disabled() -> bool:
                return not (await app.webhooks.get(webhook.id)).is_enabled

            await until(disabled)
            missed = await app.tasks["convert"].enqueue("missed")
            await missed.result("30s")
            assert (await app.webhooks.get(webhook.id)).disabled_reason == "its endpoint is gone"
            with pytest.raises(Conflict, match="enable it first"):
                await app.webhooks.replay(webhook.id)
            endpoint.answer = lambda message: "200 OK"
            enabled = await app.webhooks.enable(webhook.id)
            assert (enabled.is_enabled, enabled.failing_since, enabled.disabled_reason) == (True, None, None)
            after = await app.tasks["convert"].enqueue("after")
            messages = await endpoint.until(2)
            assert messages[1].event["subject"] == after.id
            # What it missed is told when somebody asks for it, under the ids it would have had.
            replay = await app.webhooks.replay(webhook.id)
            await endpoint.until(5)

            async def ended() -> bool:
                return (await app.operations.get(replay.id)).progress is Progress.DONE

            await until(ended)
            assert (await app.operations.get(replay.id)).done == 3
    assert len(endpoint.messages) == 5
    assert {message.event["subject"] for message in endpoint.messages[2:]} >= {missed.id, after.id}
    assert endpoint.messages[1].id in {message.id for message in endpoint.messages[2:]}


async def test_a_replay_of_a_long_log_begins_at_once_and_is_done_in_batches(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:  # E61
    monkeypatch.setattr("holdfast.webhooks.replay.BATCH", 20)
    async with app:
        webhook = await app.webhooks.create("https://1.1.1.1/", events=["queued"])
        await app.tasks["convert"].enqueue_many([{"name": str(n)} for n in range(70)])
        engine = await app.runtime.engine()
        events = await events_up_to_now(engine)
        replay = await app.webhooks.replay(webhook.id, after=events[4].id, before=events[64].id, by="ann")
        assert (replay.progress, replay.done, replay.by) == (Progress.RUNNING, 0, "ann")
        assert await sent(app, webhook) == []
        with pytest.raises(Conflict, match=f"operation {replay.id} replays"):
            await app.webhooks.replay(webhook.id)
        batch = await replay_batch(engine, replay)  # killed before it was counted: it is done again
        assert (batch.done, len(await sent(app, webhook))) == (20, 20)
        await OperationRunner(engine).run()
        ended = await app.operations.get(replay.id)
        assert (ended.progress, ended.done) == (Progress.DONE, 59)
        told = {event.id for event in events[5:64]}
        messages = [row.payload["message"] for row in await sent(app, webhook)]
        assert {int(message.rpartition("_")[2]) for message in messages} == told
        removed = await app.webhooks.replay(webhook.id)  # the other one has ended
        await app.webhooks.remove(webhook.id)
        await OperationRunner(engine).run()
        failed = await app.operations.get(removed.id)
        assert (failed.progress, failed.error) == (Progress.FAILED, "the webhook is removed")


async def events_up_to_now(engine: Engine) -> list[Event]:
    """All of them; PostgreSQL keeps back those that another transaction may yet put one before."""
    newest = await engine.store.queries.newest_event()

    async def all_there() -> bool:
        return (await engine.store.queries.events(after=0, limit=1000))[-1].id == newest

    await until(all_there)
    return list(await engine.store.queries.events(after=0, limit=1000))


async def test_a_dead_endpoint_holds_no_other(app: Holdfast) -> None:  # E61
    hanging, hung = asyncio.Event(), 0

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal hung
        hung += 1
        await hanging.wait()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    dead = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with app, Endpoint() as endpoint:
        await app.webhooks.create(dead)
        await app.webhooks.create(endpoint.url)
        await app.tasks["convert"].enqueue_many([(str(n),) for n in range(50)])
        async with working(app, concurrency=6):
            try:
                await endpoint.until(50)
                assert 1 <= hung <= 4  # of six slots the dead one has not taken all
            finally:
                hanging.set()
    await close(server)


async def test_an_endpoint_that_asks_for_time_gets_it_and_the_others_go_on(app: Holdfast) -> None:  # E61 E12
    async with (
        app,
        Endpoint(lambda message: "429 Slow Down\r\nretry-after: 600") as busy,
        Endpoint() as other,
    ):
        webhook = await app.webhooks.create(busy.url)
        await app.webhooks.create(other.url)
        async with working(app):
            await app.tasks["convert"].enqueue("a")
            await busy.until(1)

            async def held() -> bool:
                return any(webhook.id in str(hold.scope.name) for hold in await app.queues.holds())

            await until(held)
            for _ in range(5):
                await app.tasks["convert"].enqueue("b")
            await other.until(6)
            assert len(busy.messages) == 1


async def test_messages_are_signed_with_both_secrets_during_a_rotation(app: Holdfast) -> None:  # E61
    async with app, Endpoint() as endpoint:
        first = (await app.webhooks.create(endpoint.url)).secrets[0]
        [webhook] = await app.webhooks.list()
        rotated = await app.webhooks.rotate_secret(webhook.id)
        second = rotated.secrets[0]
        assert rotated.secrets == (second, first)
        async with working(app):
            await app.tasks["convert"].enqueue("a")
            [message] = await endpoint.until(1)
            message.verify(first)
            message.verify(second)
            assert (await app.webhooks.retire_secret(webhook.id)).secrets == (second,)
            await app.tasks["convert"].enqueue("b")
            message = (await endpoint.until(2))[1]
            message.verify(second)
            with pytest.raises(Exception, match="No matching signature"):
                message.verify(first)


async def test_an_old_secret_is_valid_for_a_day_after_its_rotation() -> None:  # E61
    clock = ManualClock()
    async with make_app("memory://", clock=clock, store=MemoryStore(clock)) as app:
        webhook = await app.webhooks.create_inbound()
        await app.webhooks.rotate_secret(webhook.id)
        assert [
            len((await app.webhooks.get(webhook.id)).seeds),
            len((await app.webhooks.list())[0].seeds),
        ] == [2, 2]
        failed = await app.tasks["convert"].enqueue("bad")
        await work(app)
        clock.advance(timedelta(hours=23))
        assert await ask(app, webhook, failed.id) == failed.id
        clock.advance(timedelta(hours=2))
        with pytest.raises(BadSignature, match="no signature fits"):
            await ask(app, webhook, failed.id, "msg_2")
        assert [
            len((await app.webhooks.get(webhook.id)).seeds),
            len((await app.webhooks.list())[0].seeds),
        ] == [1, 1]


async def test_no_secret_of_a_webhook_is_in_the_database(db: Database) -> None:  # E61
    """It cannot be made from what is: another app, with another key, sends nothing."""
    async with make_app(db.url) as app, Endpoint() as endpoint:
        secrets = (await app.webhooks.create(endpoint.url)).secrets
        [webhook] = await app.webhooks.list()
        secrets += (await app.webhooks.rotate_secret(webhook.id)).secrets[:1]
        before = await app.webhooks.get(webhook.id)
        table = "holdfast.webhook" if db.is_postgres else "holdfast_webhook"
        stored = repr([db.execute(f"SELECT * FROM {table}"), await app.webhooks.list()])
        assert not any(secret in stored or secret.removeprefix("whsec_") in stored for secret in secrets)
        await app.tasks["convert"].enqueue("a")
        async with make_app(db.url, secret="a copy of the database and no key") as thief:
            with pytest.raises(Conflict, match="made with another HOLDFAST_SECRET"):
                await thief.webhooks.retire_secret(webhook.id)
            async with working(thief):

                async def refused() -> bool:
                    return any(row.last_failure for row in await sent(thief, webhook))

                await until(refused)
            assert endpoint.messages == []
            assert (await app.webhooks.get(webhook.id)).seeds == before.seeds
            # A lost key is no dead end: a rotation begins anew, without the secret that cannot be made any more.
            rotated = await thief.webhooks.rotate_secret(webhook.id)
            assert (len(rotated.secrets), len(rotated.seeds)) == (1, 1)


@pytest.mark.parametrize(
    "header", ["", "webhook-id", "webhook-timestamp", "webhook-signature", "old", "body"]
)
async def test_an_unknown_webhook_is_refused_in_the_words_of_a_bad_signature(
    app: Holdfast, header: str
) -> None:  # E61
    async with app:
        inbound, outbound = await app.webhooks.create_inbound(), await app.webhooks.create("https://1.1.1.1/")
        disabled = await app.webhooks.create_inbound()
        await app.webhooks.disable(disabled.id)
        told = set()
        for webhook_id in (inbound.id, outbound.id, disabled.id, "wh_unknown", ""):
            now = (await (await app.runtime.engine()).store.now()) - timedelta(hours=header == "old")
            headers = sign([write_secret(b"x" * 32)], "msg_1", now, b"{}")
            headers.pop(header, None)
            with pytest.raises(BadSignature) as refused:
                await app.webhooks.receive(webhook_id, headers, b"[" if header == "body" else b"{}")
            told.add(str(refused.value))
        assert len(told) == 1


async def test_a_test_is_sent_once_even_to_a_disabled_webhook(app: Holdfast) -> None:
    answers = iter(["200 OK", "500 Oops"])
    async with app, Endpoint(lambda message: next(answers)) as endpoint:
        webhook = await app.webhooks.create(endpoint.url)
        await app.webhooks.disable(webhook.id)
        async with working(app):
            assert await app.jobs.result(await app.webhooks.test(webhook.id), "10s") == {"status": 200}
            failing = await app.webhooks.test(webhook.id)
            await until(lambda: _ended(app, failing))
        assert (await app.jobs.get(failing)).error_message == "the endpoint answered 500"
        assert (await app.webhooks.get(webhook.id)).failing_since is None
    assert [message.event["type"] for message in endpoint.messages] == ["holdfast.webhook.test"] * 2


async def _ended(app: Holdfast, job_id: str) -> bool:
    return (await app.jobs.get(job_id)).finished_at is not None


async def test_a_removed_webhook_is_sent_nothing_more(app: Holdfast) -> None:
    async with app, Endpoint() as endpoint:
        webhook = await app.webhooks.create(endpoint.url, events=["queued"])
        handle = await app.tasks["convert"].enqueue("a")
        await Fanout(await app.runtime.engine()).run()
        await app.webhooks.remove(webhook.id)
        [row] = await sent(app, webhook)
        async with working(app):
            assert await app.jobs.result(row.id, "10s") == {"skipped": "removed"}
            await handle.result("30s")
        with pytest.raises(UnknownWebhook):
            await app.webhooks.remove(webhook.id)
    assert endpoint.messages == []


async def test_a_webhook_that_leads_inside_is_refused_when_it_is_made(db: Database) -> None:  # E61
    app = new_app(db.url)
    async with app:
        for url in (
            "http://127.0.0.1:8000/",
            "http://localhost:8000/",
            "file:///etc/passwd",
            "http://169.254.169.254/",
        ):
            with pytest.raises(TargetNotAllowed):
                await app.webhooks.create(url)
        with pytest.raises(UsageError, match="no event 'finished'"):
            await app.webhooks.create("https://1.1.1.1/", events=["finished"])
        assert await app.webhooks.list() == []


async def test_a_webhook_that_leads_inside_later_is_refused_when_it_is_called(db: Database) -> None:  # E61
    allowing = make_app(db.url)
    async with allowing, Endpoint() as endpoint:
        webhook = await allowing.webhooks.create(endpoint.url, events=["queued"])
        await allowing.tasks["convert"].enqueue("a")
        app = new_app(db.url)
        async with app:
            async with working(app):

                async def refused() -> bool:
                    return any(row.last_failure for row in await sent(app, webhook))

                await until(refused)
            [row] = await sent(app, webhook)
    assert (
        row.last_failure["message"] == "the URL of the endpoint leads to an address that must not be called"
    )
    assert endpoint.messages == []


# -- inbound ----------------------------------------------------------------------------------------------------------
async def ask(app: Holdfast, webhook: Webhook, job_id: str, message: str = "msg_1", **changed: str) -> str:
    body = f'{{"action": "retry", "job": "{job_id}"}}'.encode()
    headers = sign(webhook.secrets, message, (await (await app.runtime.engine()).store.now()), body) | changed
    return await app.webhooks.receive(webhook.id, headers, body)


async def test_a_signed_message_retries_a_job_once(app: Holdfast) -> None:  # E61
    async with app:
        webhook = await app.webhooks.create_inbound(owner="ann")
        handle = await app.tasks["convert"].options(owner="ann").enqueue("bad")
        await work(app)
        for _ in range(3):  # sent again: same answer, nothing more
            assert await ask(app, webhook, handle.id) == handle.id
        await work(app)
        row = await app.jobs.get(handle.id)
        assert (row.state, row.manual_retry_count, row.generation) == (State.FAILED, 1, 2)
        await ask(app, webhook, handle.id)
        await work(app)
        assert (await app.jobs.get(handle.id)).manual_retry_count == 1
        await ask(app, webhook, handle.id, "msg_2")
        await work(app)
        assert (await app.jobs.get(handle.id)).manual_retry_count == 2


async def test_a_message_retries_no_more_jobs_than_the_quota_of_their_owner_allows(
    db: Database, tmp_path: Path
) -> None:  # E18 E61
    policies = tmp_path / "policies.toml"
    policies.write_text("[quotas.default]\nmanual_retries_per_day = 1\n")
    async with make_app(db.url, policies=policies) as app:
        webhook = await app.webhooks.create_inbound(owner="ann")
        handles = await app.tasks["convert"].options(owner="ann").enqueue_many(["bad", "bad"])
        await work(app)
        for message, handle in enumerate(handles):
            await ask(app, webhook, handle.id, f"msg_{message}")
            await work(app)
        rows = [await app.jobs.get(handle.id) for handle in handles]
        assert [row.manual_retry_count for row in rows] == [1, 0]
        answers = [row.result for row in (await app.jobs.list(task="holdfast.inbound")).rows]
        assert ["refused" in answer for answer in answers] == [True, False]  # newest first


async def test_a_message_that_is_not_to_be_believed_does_nothing(app: Holdfast) -> None:  # E61
    async with app, Endpoint() as endpoint:
        webhook = await app.webhooks.create_inbound(owner="ann")
        outbound = await app.webhooks.create(endpoint.url)
        anns = await app.tasks["convert"].options(owner="ann").enqueue("bad")
        bobs = await app.tasks["convert"].options(owner="bob").enqueue("bad")
        done = await app.tasks["convert"].options(owner="ann").enqueue("good")
        await work(app)
        with pytest.raises(BadSignature):
            await ask(app, webhook, anns.id, **{"webhook-id": "msg_2"})
        with pytest.raises(BadSignature):
            await ask(app, webhook, anns.id, **{"webhook-timestamp": "1700000000"})
        with pytest.raises(BadSignature):
            await ask(app, outbound, anns.id)
        with pytest.raises(Conflict, match="another owner"):
            await ask(app, webhook, bobs.id)
        with pytest.raises(Conflict, match="complete"):
            await ask(app, webhook, done.id)
        with pytest.raises(UnknownJob):
            await ask(app, webhook, "0190a0b0-1111-7abc-8def-0123456789ab")
        other = Webhook(
            id=webhook.id,
            url="",
            events=(),
            owner="ann",
            seeds=webhook.seeds,
            secrets=(write_secret(b"x" * 32),),
            created_at=webhook.created_at,
        )
        with pytest.raises(BadSignature):
            await ask(app, other, anns.id)
        now = await (await app.runtime.engine()).store.now()
        for body in (
            b"",
            b"{}",
            b"[" * 5000,
            b'{"action": "cancel", "job": "x"}',
            b'{"action":"retry","job":"x","y":1}',
        ):
            with pytest.raises(UsageError):
                await app.webhooks.receive(webhook.id, sign(webhook.secrets, "msg_9", now, body), body)
        assert (await app.jobs.list(task="holdfast.inbound")).rows == []


# -- killed -----------------------------------------------------------------------------------------------------------
WORKER = """
import asyncio, sys
import holdfast.worker.claiming
from tests.integration.test_webhooks import make_app
holdfast.worker.claiming.REFRESH_EVERY = 0.1
asyncio.run(make_app(sys.argv[1], lease="2s").run_worker())
"""


@pytest.mark.slow
async def test_workers_that_are_killed_again_and_again_leave_no_event_untold(
    app: Holdfast, db: Database
) -> None:  # E61 E6
    async with app, Endpoint() as endpoint:
        webhook = await app.webhooks.create(endpoint.url, events=["queued"])
        total = 0
        for life in range(2):
            worker: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-c", WORKER, db.url], cwd=ROOT
            )
            try:
                for _ in range(5):
                    await app.tasks["convert"].enqueue_many([(str(n),) for n in range(10)])
                    total += 10
                    await asyncio.sleep(0.1)
                await endpoint.until(total // 3 if life else 1)  # in the midst of it
            finally:
                worker.kill()
                worker.wait()
        handled = {message.id for message in endpoint.messages}
        async with working(app):
            async with asyncio.timeout(50):
                while len(handled) < total:
                    await endpoint.until(len(endpoint.messages) + 1)
                    handled = {message.id for message in endpoint.messages}
            await until(lambda: _all_told(app, webhook, total))
        assert len(handled) == len(await sent(app, webhook)) == total


async def _all_told(app: Holdfast, webhook: Webhook, total: int) -> bool:
    return sum(row.state is State.COMPLETE for row in await sent(app, webhook)) == total
