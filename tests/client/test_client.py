"""Every verb of the Python clients, plain and async, against the live API."""

from __future__ import annotations

import inspect
import itertools
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from holdfast.client import AsyncClient, Client, calls, errors
from holdfast.errors import HoldfastError, UsageError
from holdfast.server.problems import CODES
from tests.app.test_public_names import HEAVY, loaded_by
from tests.client.conftest import Make
from tests.client.world import WAIT, Live


def dead(client: Any, **options: Any) -> str:
    """The id of a job that has failed for good."""
    job = client.enqueue("refuse", {"why": "no"}, **options)
    assert client.wait(job.id, timeout=WAIT).state == "failed"
    return str(job.id)


def later(client: Any, **options: Any) -> str:
    """The id of a job that waits for tomorrow."""
    return str(client.enqueue("convert", {"pdf": "later.pdf"}, delay="1d", **options).id)


def test_a_job_is_enqueued_waited_for_and_its_result_read(client: Any) -> None:  # E69
    made = client.enqueue("convert", {"pdf": "a.pdf", "pages": 3}, owner="alice", tags=["x"], priority="high")
    assert (made.state, made.duplicate) == ("queued", False)
    job = client.wait(made.id, timeout=WAIT)
    assert (job.state, job.owner, job.tags) == ("complete", "alice", ["x"])
    assert isinstance(job.finished_at, datetime)
    assert client.result(made.id, timeout=WAIT) == "a.pdf:3"
    assert client.job(made.id).result == "a.pdf:3"
    kinds = [event.kind for event in client.job_events(made.id)]
    assert kinds[0] == "queued"
    assert kinds[-1] == "complete"
    [attempt] = client.attempts(made.id)
    assert attempt.outcome == "complete"


def test_many_are_enqueued_at_once_and_listed_page_by_page(client: Any) -> None:  # E69
    owner = f"many-{uuid4()}"
    jobs = [{"task": "convert", "args": {"pdf": str(number)}, "owner": owner} for number in range(7)]
    made = client.enqueue_many(jobs)
    assert len(made) == 7
    listed = [job.id for job in client.jobs(owner=owner, limit=3)]
    assert sorted(listed) == sorted(job.id for job in made)
    assert list(client.jobs(owner=owner, created_after=datetime.now(UTC) + timedelta(hours=1))) == []


def test_a_waiting_job_is_explained_cancelled_and_retried(client: Any) -> None:  # E69
    job_id = later(client)
    assert "It is not due before" in client.explain(job_id).sentence
    with pytest.raises(TimeoutError, match="still queued"):
        client.wait(job_id, timeout="10ms")
    assert client.cancel(job_id, reason="not needed").state == "cancelled"
    with pytest.raises(errors.JobFailed) as failed:
        client.result(job_id)
    assert failed.value.facts["state"] == "cancelled"
    assert client.retry(job_id).state == "queued"
    assert client.wait(job_id, timeout=WAIT).state == "complete"


def test_who_read_an_older_version_does_not_get_to_act_on_it(client: Any) -> None:  # E69
    job_id = later(client)
    read = client.exchange(calls.get_job(job_id))
    assert (read.status, read.value.id) == (200, job_id)
    client.retry(job_id)
    with pytest.raises(errors.Changed) as changed:
        client.cancel(job_id, if_match=read.headers["etag"])
    assert changed.value.code == "PRECONDITION_FAILED"


def test_dead_letters_are_listed_grouped_redriven_and_discarded(client: Any) -> None:  # E69
    owner = f"dead-{uuid4()}"
    first, second = dead(client, owner=owner), dead(client, owner=owner)
    assert {letter.id for letter in client.dead_letters(owner=owner, limit=1)} == {first, second}
    [group] = client.dead_letter_groups(task=["refuse"], owner=owner)
    assert (group.code, group.count) == ("REFUSED", 2)
    assert client.redrive(first).state == "queued"
    assert client.discard(second, reason="of no use").state == "failed"
    with pytest.raises(errors.NotFound, match="no dead letter"):
        client.discard(second, reason="again")


def test_everything_that_matches_is_counted_and_then_done(client: Any) -> None:  # E69
    owner = f"all-{uuid4()}"
    for _ in range(3):
        later(client, owner=owner)
    assert client.preview("cancel", {"owner": owner}).matched == 3
    begun = client.operate("cancel", {"owner": owner}, rate=1000.0, reason="tidy up")
    assert begun.matched == 3
    assert client.operation(begun.id).action == "cancel"
    assert client.cancel_operation(begun.id).id == begun.id


def test_a_queue_is_paused_and_resumed_and_all_that_runs_is_seen(client: Any) -> None:  # E69
    client.wait(client.enqueue("convert", {"pdf": "a"}).id, timeout=WAIT)
    dead(client)
    assert client.pause("task", "refuse", duration="1h", reason="tests").paused
    assert client.resume("task", "refuse").resumed
    assert "default" in {queue.name for queue in client.queues()}
    assert {lane.task for lane in client.lanes()} >= {"convert", "refuse"}
    client.send(calls.open_breaker("gateway", duration="1m"))
    client.send(calls.close_breaker("gateway"))
    assert "gateway" in {breaker.dependency for breaker in client.breakers()}
    assert len(client.workers()) == 1
    assert client.health().status in ("pass", "warn", "fail")


def test_what_happens_is_told_as_it_happens_and_can_be_taken_up(client: Any) -> None:  # E61, E69
    job_id = later(client)
    [queued] = client.job_events(job_id)
    stream = client.events(after=queued.id, job_id=job_id)
    client.cancel(job_id)
    told = next(stream)
    assert (told.kind, told.job_id, told.task) == ("cancelled", job_id, "convert")
    assert isinstance(told.at, datetime)
    stream.close()
    kinds = client.events(after=queued.id, kind=["cancelled"])
    assert next(kinds).id == told.id
    kinds.close()


def test_who_comes_back_too_late_is_told_to_read_anew(client: Any) -> None:  # E61
    stream = client.events(after="9" * 25)
    assert next(stream).kind == "reset"
    stream.close()


@pytest.mark.parametrize(
    ("ask", "kind", "code"),
    [
        (lambda client: client.job("019a8f6e-2a53-7cc1-9d0e-5f1c7a0b3d42"), errors.NotFound, "NOT_FOUND"),
        (lambda client: client.job("a/../b?c#d"), errors.NotFound, "NOT_FOUND"),
        (lambda client: client.enqueue("nothing"), errors.Invalid, "UNKNOWN_TASK"),
        (lambda client: client.enqueue("convert", {"pdf": 1}), errors.Invalid, "INVALID"),
        (lambda client: client.send(calls.list_jobs(cursor="x")), errors.BadRequest, "BAD_CURSOR"),
        (lambda client: next(client.events(kind="nothing")), errors.Invalid, "INVALID"),
    ],
)
def test_a_refusal_is_an_error_with_its_code(client: Any, ask: Any, kind: Any, code: str) -> None:  # E69
    with pytest.raises(kind) as refused:
        ask(client)
    assert refused.value.code == code
    assert refused.value.status == CODES[code].status
    assert refused.value.detail
    assert refused.value.instance.startswith("urn:uuid:")
    assert "\n" not in str(refused.value)
    assert isinstance(refused.value, HoldfastError)


def test_keys_decide_what_a_client_may_do(make: Make, live: Live) -> None:  # E66, E69
    with pytest.raises(errors.Unauthenticated):
        make(key="hf_wrong").job("x")
    with pytest.raises(errors.Unauthenticated):
        next(make(key=None).events())
    olga = make(key=live.new_key("owner", "olga"))
    assert olga.job(olga.enqueue("convert", {"pdf": "a"}).id).owner == "olga"
    with pytest.raises(errors.Forbidden):
        olga.enqueue("convert", {"pdf": "a"}, owner="bob")
    with pytest.raises(errors.Forbidden):
        olga.workers()
    with pytest.raises(errors.Forbidden, match="declare it with http=True"):
        olga.enqueue("refuse", {"why": "no"})
    with pytest.raises(errors.Forbidden, match="declare it with http=True"):
        olga.enqueue_many(
            [{"task": "convert", "args": {"pdf": "a"}}, {"task": "refuse", "args": {"why": "no"}}]
        )
    for internal in ("holdfast.webhook", "holdfast.inbound"):  # the worker of this process has them
        for one in (olga, make(key=live.key)):
            with pytest.raises(errors.Forbidden, match="engine's own"):
                one.enqueue(internal, {})
    with pytest.raises(errors.Forbidden, match="queue 'mine'"):
        olga.enqueue("convert", {"pdf": "a"}, queue="mine")


def test_the_same_idempotency_key_makes_one_job(client: Any) -> None:  # E69
    key = str(uuid4())
    first = client.enqueue("convert", {"pdf": "a"}, idempotency_key=key)
    assert client.enqueue("convert", {"pdf": "a"}, idempotency_key=key).id == first.id
    with pytest.raises(errors.Invalid) as reused:
        client.enqueue("convert", {"pdf": "b"}, idempotency_key=key)
    assert reused.value.code == "IDEMPOTENCY_KEY_REUSED"


def test_both_clients_have_the_same_verbs() -> None:
    plain, other = (
        {
            name: [str(one) for one in inspect.signature(verb).parameters.values()]
            for name, verb in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }
        for kind in (Client, AsyncClient)
    )
    assert plain == other


class Endless(httpx2.SyncByteStream):
    """A stream of events that ends when it is closed."""

    is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        for number in itertools.count(1):
            yield f"id: {number}\nevent: complete\ndata: {{}}\n\n".encode()

    def close(self) -> None:
        self.is_closed = True


async def test_a_plain_client_works_inside_an_event_loop_and_a_closed_stream_closes_its_connection() -> None:
    body = Endless()

    def respond(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=body)

    with Client("http://127.0.0.1:1", transport=httpx2.MockTransport(respond)) as client:
        events: Any = client.events()
        assert [next(events).id, next(events).id] == ["1", "2"]
        assert not body.is_closed
        events.close()
        assert body.is_closed


def test_every_code_of_the_api_has_an_error_of_its_own_kind() -> None:  # E69
    for code, known in CODES.items():
        body = b'{"code": "%b"}' % code.encode()
        told = errors.problem_of(known.status, "application/problem+json", body, None)
        assert isinstance(told, errors.Problem)
        assert type(told) is not errors.Problem or known.status in (405, 415)


@pytest.mark.parametrize(
    "url", ["", "jobs.example.com", "ftp://a", "http://", "http://u:canary@a", "http://a?x=1", "http://[a"]
)
def test_a_url_that_is_none_is_refused_without_telling_it(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        Client(url)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_certificates_are_read_for_https_alone(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    make = ssl.create_default_context

    def counted(*args: Any, **more: Any) -> ssl.SSLContext:
        read.append("certificates")
        return make(*args, **more)

    monkeypatch.setattr(ssl, "create_default_context", counted)
    kind("http://127.0.0.1:1")
    assert read == []
    kind("https://127.0.0.1:1")
    assert read == ["certificates"]


def test_a_key_is_in_no_text_and_must_look_like_one() -> None:
    with Client("http://127.0.0.1:1/x/api/v1/", key="hf_canary") as client:
        assert repr(client) == "<Client of http://127.0.0.1:1/x>"
    for bad in ("", "two\r\nlines", " x", "ü"):
        with pytest.raises(UsageError) as refused:
            Client("http://127.0.0.1:1", key=bad)
        assert not bad or bad not in str(refused.value)


@pytest.mark.parametrize("bad", ["", ".", ".."])
def test_what_is_no_id_is_refused_before_it_becomes_another_path(client: Any, bad: str) -> None:
    with pytest.raises(UsageError, match="not an id"):
        client.job(bad)


def test_an_argument_without_a_form_in_json_is_refused_here(client: Any) -> None:
    with pytest.raises(UsageError, match="cannot be sent as JSON"):
        client.enqueue("convert", {"pdf": object()})


def test_importing_the_client_imports_neither_engine_nor_server() -> None:  # E69
    assert loaded_by("import holdfast.client").isdisjoint(set(HEAVY) - {"rich", "click"})
    code = "import holdfast.client, sys; assert not [m for m in sys.modules if m.startswith(('holdfast.engine', 'holdfast.app'))]"
    loaded_by(code)
