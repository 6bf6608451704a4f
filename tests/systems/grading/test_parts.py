"""The parts of the worker by themselves: waits, breaker, ledger, recordings, what is let through to Celery."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import psycopg
import pytest
from celery import Celery
from celery.worker.consumer import Consumer
from hypothesis import example, given
from hypothesis import strategies as st
from kombu import Message
from kombu.exceptions import OperationalError
from prometheus_client import CollectorRegistry, generate_latest

from holdfast import UsageError
from holdfast.celery import BadSignature, encode_task, sign, verify
from holdfast.cli import main as holdfast
from holdfast.resilience.classify import classify
from holdfast.resilience.outcome import outcome_of
from systems.grading import audio
from systems.grading.messages import LARGEST_MESSAGE, parse_request_id, request_id
from systems.grading.settings import Settings
from systems.grading.tasks import PROVIDER, build
from systems.grading.topology import DEAD, REFUSED, queues, wait_queue
from systems.grading.worker.backoff import Backoff
from systems.grading.worker.failures import PermanentFailure, TransientFailure
from systems.grading.worker.ledger import Cost, Ended, Held, Ledger, Taken
from systems.grading.worker.ledger_stores import LedgerUnavailable
from systems.grading.worker.metrics import Alarms
from systems.grading.worker.provider import Provider, failure_of, read_retry_after, translated_errors
from systems.grading.worker.screening import ScreeningConsumer, Unfit, record_of, screen
from systems.grading.worker.sender import NotSent, Sender

SUBMISSION = "01a1e359-297e-75e7-bba9-287684a79c65"
REQUEST = request_id(SUBMISSION, 1)


# -- waits ------------------------------------------------------------------------------------------------------------------
@given(
    retry=st.integers(1, 9) | st.integers(10, 10_000),
    chance=st.floats(0, 1),
    asked=st.none() | st.floats(0, 400_000),
)
@example(retry=1, chance=0.0, asked=30_000.0)
def test_a_wait_is_two_to_the_retry_plus_jitter_no_shorter_than_asked_and_within_the_cap(  # G3
    retry: int, chance: float, asked: float | None
) -> None:
    wait = Backoff().after(retry, chance, asked)
    plain = min(1000.0 * 2 ** min(retry, 40), 300_000.0)
    assert plain <= wait <= 300_000
    assert wait >= min(asked or 0, 300_000)
    if asked is None:
        assert wait <= plain + 1000


@given(delay=st.floats(0, 300_000))
def test_a_queue_of_waits_keeps_a_request_as_long_as_it_asked_for_and_hardly_longer(
    delay: float,
) -> None:  # G3
    _, arguments = wait_queue(delay)
    assert delay <= arguments["x-message-ttl"] <= max(250, delay + 1000)
    assert arguments["x-expires"] >= arguments["x-message-ttl"] + 60_000


def test_every_queue_says_how_often_it_delivers_a_message() -> None:  # G4
    """One that does not is given a limit by RabbitMQ 4, and what was looked at so often is dropped."""
    limits = {name: arguments["x-delivery-limit"] for name, arguments in queues().items()}
    assert min(limits[DEAD], limits[REFUSED]) > 1_000_000


def test_retry_after_is_read_as_seconds_or_as_a_date_and_nonsense_is_not() -> None:  # G3
    now = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
    later = format_datetime(now.replace(second=31), usegmt=True)
    assert read_retry_after("7", now.timestamp()) == 7000
    assert read_retry_after(later, now.timestamp()) == 30_000
    for nonsense in (None, "", "soon", "-5", "1e9", "٣", "9" * 30, "Mon, 99 Foo 2026"):
        assert read_retry_after(nonsense, now.timestamp()) is None


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_throttling_and_errors_of_the_provider_are_tried_again(status: int) -> None:  # G3
    failed = failure_of(status, "3", lambda: 0.0)
    assert isinstance(failed, TransientFailure)
    assert failed.asked_ms == 3000


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_what_the_provider_refuses_is_not_tried_again(status: int) -> None:  # G3
    assert isinstance(failure_of(status, None, lambda: 0.0), PermanentFailure)


# -- the breaker --------------------------------------------------------------------------------------------------------------
def test_the_breaker_of_the_provider_is_the_one_of_the_source() -> None:  # G7
    policy = build(Settings()).app.runtime.declared.admission.dependencies[PROVIDER]
    assert (policy.limiter, policy.budget) == (None, None)
    breaker = policy.breaker
    assert breaker is not None
    assert [breaker.trips(20, failed, 0) for failed in (10, 11)] == [False, True]  # above half, not at half
    assert not breaker.trips(19, 19, 0)  # not twenty yet
    assert breaker.wait(0, 1.0) == timedelta(seconds=30)
    assert (breaker.trials, breaker.trials_to_close) == (3, 3)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(429, "throttled"), (408, "failed"), (500, "failed"), (503, "failed"), (401, "ok"), (422, "ok")],
)
def test_a_status_tells_the_breaker_whether_the_provider_is_well(status: int, outcome: str) -> None:  # G7
    provider = answering(lambda _: httpx2.Response(status))
    with pytest.raises(httpx2.HTTPStatusError) as raised:
        provider.grade(REQUEST, "a text")
    assert outcome_of(classify(raised.value), 0.1, None) == outcome


# -- the provider -------------------------------------------------------------------------------------------------------------
def answering(answer: Callable[[httpx2.Request], httpx2.Response]) -> Provider:
    return Provider(Settings(), httpx2.Client(transport=httpx2.MockTransport(answer)))


def saying(content: str) -> Provider:
    """A model that says this, in an answer of the right protocol."""
    body = {"choices": [{"message": {"content": content}}], "usage": {"total_tokens": 9}}
    return answering(lambda _: httpx2.Response(200, json=body))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "I think it is a 7.",
        "{}",
        '{"overall": 7}',
        '{"overall": 11, "bands": {"task": 7}, "feedback": ""}',
    ],
)
def test_a_models_answer_that_breaks_the_schema_is_not_tried_again(content: str) -> None:  # G4
    with pytest.raises(PermanentFailure) as given_up:
        saying(content).grade(REQUEST, "a text")
    assert given_up.value.code == "INVALID_SCHEMA"


def test_an_answer_that_is_not_of_the_protocol_is_an_error_of_the_service() -> None:  # G4
    page = answering(lambda _: httpx2.Response(200, text="<html>We will be back soon.</html>"))
    with pytest.raises(TransientFailure) as failed:
        page.grade(REQUEST, "a text")
    assert failed.value.code == "BAD_ANSWER"
    assert outcome_of(classify(failed.value), 0.1, None) == "failed"


def test_what_the_client_raises_is_explained_without_the_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # G3
    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("to http://10.0.0.1/secret", request=request)

    for answer, code in (
        (refuse, "PROVIDER_UNREACHABLE"),
        (lambda _: httpx2.Response(503, headers={"retry-after": "7"}), "PROVIDER_ERROR"),
    ):
        with pytest.raises(TransientFailure) as failed, translated_errors():
            answering(answer).grade(REQUEST, "a text")
        assert failed.value.code == code
        assert "secret" not in failed.value.reason


# -- the ledger -----------------------------------------------------------------------------------------------------------------
class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["file", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    if request.param == "file":
        return tmp_path / "ledger.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def ledger(where: Path | str, clock: Clock) -> Iterator[Ledger]:
    with contextlib.closing(Ledger(where, clock)) as opened:
        yield opened


def test_a_request_in_live_hands_is_nobody_elses_and_in_dead_ones_the_next_ones(  # G3
    ledger: Ledger, clock: Clock
) -> None:
    assert ledger.take(REQUEST, "a", 30) == Taken(REQUEST, "a", 0, 0)
    assert ledger.take(REQUEST, "b", 30) == Held(30)
    clock.now += 31
    assert ledger.take(REQUEST, "b", 30) == Taken(REQUEST, "b", 0, 1)  # one worker was lost with it


def test_of_many_that_take_a_request_at_once_one_has_it(
    ledger: Ledger, where: Path | str, clock: Clock
) -> None:  # G3
    """As if on two machines: each has a ledger of its own, at one place."""
    with contextlib.closing(Ledger(where, clock)) as other, ThreadPoolExecutor(8) as hands:
        taken = list(hands.map(lambda n: (ledger, other)[n % 2].take(REQUEST, str(n), 30), range(8)))
    assert sorted(type(one).__name__ for one in taken) == ["Held"] * 7 + ["Taken"]


def test_a_ledger_whose_database_was_away_is_asked_again(postgres_url: str) -> None:  # G3
    with contextlib.closing(Ledger(postgres_url)) as ledger, psycopg.connect(postgres_url) as operator:
        assert isinstance(ledger.take(REQUEST, "a", 30), Taken)
        ended = operator.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
        assert ended is not None
        assert ended[0] >= 1
        held = ledger.take(REQUEST, "b", 30)
        assert isinstance(held, Held)
        assert 0 < held.left <= 30  # by the database's clock


def test_a_ledger_that_stays_away_is_told_in_one_line_without_its_password(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:  # G3
    monkeypatch.setattr("systems.grading.worker.ledger_stores.PATIENCE_SEC", 0.0)
    monkeypatch.setattr("systems.grading.worker.ledger_stores.AGAIN_SEC", 0.01)
    with pytest.raises(LedgerUnavailable, match="cannot be reached"):
        Ledger("postgresql://grader:hidden@127.0.0.1:1/none")
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("ledger.unavailable ")
    assert "hidden" not in line


def test_only_the_hands_that_hold_it_can_end_a_request_and_it_is_charged_once(  # G3
    ledger: Ledger, clock: Clock
) -> None:
    old = ledger.take(REQUEST, "a", 30)
    assert isinstance(old, Taken)
    clock.now += 31
    new = ledger.take(REQUEST, "b", 30)
    assert isinstance(new, Taken)
    assert not ledger.end(old, "{}", cost=Cost(5))
    assert ledger.end(new, '{"b": 1}', cost=Cost(7))
    assert not ledger.end(new, "{}", cost=Cost(9))
    assert ledger.charges() == {REQUEST: Cost(7)}
    assert ledger.take(REQUEST, "c", 30) == Ended('{"b": 1}', None, False)


def test_a_copy_of_a_request_that_is_put_off_is_put_off_too_and_uses_no_retry(  # G3
    ledger: Ledger, clock: Clock
) -> None:
    taken = ledger.take(REQUEST, "a", 30)
    assert isinstance(taken, Taken)
    assert ledger.put_off(taken, 10, failed=True)
    assert ledger.take(REQUEST, "b", 30) == Held(10)
    clock.now += 10
    assert ledger.take(REQUEST, "b", 30) == Taken(REQUEST, "b", 1, 0)


def test_a_bad_copy_of_a_request_ends_it_only_if_nobody_has_seen_a_good_one(
    ledger: Ledger, clock: Clock
) -> None:  # G4
    taken = ledger.take(REQUEST, "a", 30)
    assert isinstance(taken, Taken)
    assert ledger.refuse(REQUEST, '"bad"') is None  # in hand
    ledger.put_off(taken, 10, failed=True)
    assert ledger.refuse(REQUEST, '"bad"') is None  # to be tried again
    clock.now += 10
    taken = ledger.take(REQUEST, "a", 30)
    assert isinstance(taken, Taken)
    clock.now += 31
    assert ledger.refuse(REQUEST, '"bad"') is None  # its worker was lost, and it comes again
    other = request_id(SUBMISSION, 2)
    for _ in range(2):  # until it was told: the worker may be lost before
        assert ledger.refuse(other, '"bad"') == '"bad"'
    ledger.mark_reported(other)
    assert ledger.refuse(other, '"bad"') is None
    assert ledger.take(other, "a", 30) == Ended(
        '"bad"', None, True
    )  # the good one comes too late, and costs nothing


def test_a_hold_by_the_breaker_is_not_one_of_the_retries(ledger: Ledger) -> None:  # G7
    for _ in range(10):
        taken = ledger.take(REQUEST, "a", 30)
        assert isinstance(taken, Taken)
        assert taken.retries == 0
        ledger.put_off(taken, 0, failed=False)


def test_a_callback_that_no_broker_takes_is_tried_so_often_and_then_an_alarm(ledger: Ledger) -> None:  # G6
    waits: list[float] = []
    sender = Sender("amqp://x:y@127.0.0.1:1/", ledger, tries=4, base_ms=100, sleep=waits.append)
    with pytest.raises(NotSent):
        sender.callback(b"{}", {}, REQUEST)
    assert waits == [0.1, 0.2, 0.4]
    [alarm] = ledger.alarms()
    assert (alarm.name, alarm.times) == ("callback_not_sent", 1)
    assert REQUEST in alarm.last


def test_an_alarm_is_shown_at_the_command_line_until_somebody_clears_it(
    ledger: Ledger, where: Path | str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # G6
    monkeypatch.setenv("LEDGER", str(where))
    assert holdfast(["grading", "alarms"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    ledger.raise_alarm("callback_not_sent", "first")
    ledger.raise_alarm("callback_not_sent", "last words")
    assert holdfast(["grading", "alarms"]) == 1
    [shown] = json.loads(capsys.readouterr().out)
    assert shown == {
        "name": "callback_not_sent",
        "times": 2,
        "last": "last words",
        "at": "1970-01-01T00:16:40+00:00",
    }
    assert holdfast(["grading", "alarms", "--clear"]) == holdfast(["grading", "alarms"]) == 0


# -- recordings -----------------------------------------------------------------------------------------------------------------
def test_a_recording_is_decoded_to_its_last_sample() -> None:
    assert audio.decode(audio.make_recording("hello", seconds=0.5)) == audio.Recording(0.5, 8000, 1)


SOUND = audio.make_recording()


@pytest.mark.parametrize(
    ("sound", "word"),
    [
        (b"", "empty"),
        (b"RIFF", "early"),
        (b"ID3" + bytes(500), "RIFF"),
        (SOUND[:-100], "announces"),
        (SOUND[:20] + struct.pack("<H", 85) + SOUND[22:], "format"),  # MP3 in a WAV
        (SOUND[:22] + struct.pack("<H", 0) + SOUND[24:], "channels"),
        (SOUND[:24] + struct.pack("<I", 0) + SOUND[28:], "0 Hz"),
        (
            SOUND[:40] + struct.pack("<I", 0xFFFFFFF0) + SOUND[44:],
            "longer|announces|early",
        ),  # says it has four gigabytes
        (audio.make_recording(seconds=0), "0"),
    ],
)
def test_a_broken_recording_is_told_apart(sound: bytes, word: str) -> None:  # G4
    with pytest.raises(audio.Undecodable, match=word):
        audio.decode(sound)


# -- the screen -------------------------------------------------------------------------------------------------------------------
def _message(**changes: Any) -> tuple[str, dict[str, str], bytes]:
    request = {"requestId": REQUEST, "submissionId": SUBMISSION, "skill": "writing", "text": "a"} | changes
    message = encode_task("grading.grade", kwargs={"request": request}, task_id=REQUEST)
    return "application/json", message.headers, message.body


def test_a_request_of_ours_is_let_through() -> None:
    assert screen(*_message()).request_id == REQUEST


AUDIO = {"name": f"{SUBMISSION}.wav", "sha256": "0" * 64, "size": 1}
BAD_REQUESTS: list[dict[str, Any]] = [
    {"skill": "dancing"},
    {"text": None},
    {"text": 7},
    {"text": "x" * 50_001},
    {"requestId": "1"},
    {"submissionId": "01a1e359-297e-75e7-bba9-000000000000"},
    {"skill": "speaking"},
    {"skill": "speaking", "audio": AUDIO},  # and a text
    {"skill": "speaking", "text": None, "audio": AUDIO | {"name": "../../etc/passwd"}},
    {"surprise": 1},
]


@pytest.mark.parametrize("changes", BAD_REQUESTS)
def test_a_request_that_breaks_the_schema_is_not(changes: dict[str, Any]) -> None:  # G4
    content_type, headers, body = _message(**changes)
    with pytest.raises(Unfit) as unfit:
        screen(content_type, headers, body)
    record = record_of(headers, body, unfit.value)
    assert (record.request_id, record.submission_id) == (REQUEST, SUBMISSION)
    assert record.failure_reason == "INVALID_MESSAGE"


GOOD_TYPE, GOOD_HEADERS, GOOD_BODY = _message()
BAD_MESSAGES: list[tuple[str, Any, bytes]] = [
    ("application/x-python-serialize", GOOD_HEADERS, b"\x80\x04."),
    ("application/x-yaml", GOOD_HEADERS, GOOD_BODY),
    (GOOD_TYPE, GOOD_HEADERS, b"\xff\xfe" + GOOD_BODY),
    (GOOD_TYPE, GOOD_HEADERS, b'[[],{"request":{"text":"\xed\xa0\x80"}},{}]'),
    (GOOD_TYPE, GOOD_HEADERS, b" " * (LARGEST_MESSAGE + 1)),
    (GOOD_TYPE, GOOD_HEADERS, b"5"),
    (GOOD_TYPE, GOOD_HEADERS, b"[" * 5000),
    (GOOD_TYPE, GOOD_HEADERS, b'{"args": [], "kwargs": {}}'),
    (GOOD_TYPE, {}, GOOD_BODY),
    (GOOD_TYPE, None, GOOD_BODY),
    (GOOD_TYPE, {"task": "os.system", "id": REQUEST}, GOOD_BODY),
    (GOOD_TYPE, {"task": "grading.grade"}, GOOD_BODY),
    (GOOD_TYPE, GOOD_HEADERS | {"eta": "2999-01-01T00:00:00"}, GOOD_BODY),
    (GOOD_TYPE, GOOD_HEADERS | {"id": request_id(SUBMISSION, 2)}, GOOD_BODY),
]


@pytest.mark.parametrize(("content_type", "headers", "body"), BAD_MESSAGES)
def test_a_message_that_is_no_request_is_not_let_through(
    content_type: str, headers: Any, body: bytes
) -> None:  # G4
    with pytest.raises(Unfit) as unfit:
        screen(content_type, headers, body)
    assert len(record_of(headers, body, unfit.value).request) <= 2000


@given(body=st.binary(max_size=200))
def test_no_bytes_whatever_break_the_screen(body: bytes) -> None:  # G4
    with pytest.raises(Unfit):
        screen(GOOD_TYPE, GOOD_HEADERS, body)


# -- signatures -------------------------------------------------------------------------------------------------------------------
ONE, TWO = "one secret of twenty-four or more", "two secret of twenty-four or more"


class Restarts(Exception):
    """The worker has connected again so often."""


def test_a_connection_that_is_cut_while_the_worker_begins_makes_it_connect_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # G8
    """Celery's own steps raise what kombu makes of a reset connection, which ended the worker."""
    app = Celery("test", broker="amqp://127.0.0.1:1/", set_as_current=False)
    parts: Any = {
        "controller": SimpleNamespace(use_eventloop=False, semaphore=None),
        "pool": SimpleNamespace(flush=lambda: None, is_green=False),
        "timer": SimpleNamespace(clear=lambda: None),
    }
    consumer = ScreeningConsumer(lambda _: None, app=app, **parts)
    names = {type(step).__name__ for step in consumer.steps}
    assert names.isdisjoint({"Mingle", "Gossip", "Heart", "Events", "DelayedDelivery"})
    assert "Tasks" in names
    begun: list[None] = []

    def begin(_: Any) -> None:
        begun.append(None)
        if len(begun) == 3:
            raise Restarts
        raise OperationalError("[Errno 104] Connection reset by peer")

    monkeypatch.setattr(consumer.blueprint, "start", begin)
    monkeypatch.setattr(consumer.blueprint, "restart", lambda _: None)
    with pytest.raises(Restarts):
        consumer.start()


@pytest.mark.parametrize("buried", [True, False])
def test_a_broker_lost_while_a_message_is_refused_is_logged_and_not_an_error(
    buried: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:  # G4
    def lost(*_: Any, **__: Any) -> None:
        raise ConnectionResetError("the broker is away")

    def bury(*_: Any) -> None:
        if not buried:
            raise NotSent("no confirm")

    monkeypatch.setattr(Consumer, "create_task_handler", lambda *_, **__: pytest.fail)
    consumer = object.__new__(ScreeningConsumer)
    consumer.app = SimpleNamespace(
        sender=lambda: SimpleNamespace(dead_letter=bury), report_refused=lambda _: None
    )
    channel = SimpleNamespace(basic_ack=lost, basic_reject=lost, no_ack_consumers=())
    consumer.create_task_handler()(Message(body=b"{", delivery_tag=1, channel=channel))
    assert "the broker is away" in caplog.text


def test_a_signature_fits_its_body_its_id_and_its_secret_and_no_other() -> None:  # G6
    headers = sign(ONE, REQUEST, b"body")
    verify([TWO, ONE], headers, REQUEST, b"body")
    wrong: list[tuple[list[str], dict[str, Any], str | None, bytes]] = [
        ([TWO], headers, REQUEST, b"body"),
        ([ONE], headers, REQUEST, b"bodY"),
        ([ONE], headers, REQUEST + "0", b"body"),
        ([ONE], {}, REQUEST, b"body"),
        ([ONE], {"holdfast-signature": 7}, REQUEST, b"body"),
        ([ONE], {"holdfast-signature": "v1=\udcff"}, REQUEST, b"body"),
        ([ONE], headers, None, b"body"),
        ([], headers, REQUEST, b"body"),
    ]
    for secrets, given_headers, name, body in wrong:
        with pytest.raises(BadSignature):
            verify(secrets, given_headers, name, body)


def test_a_task_for_celery_is_a_message_of_its_protocol() -> None:  # E45
    message = encode_task("a.b", [1], {"x": "é"}, task_id="t")
    assert json.loads(message.body) == [
        [1],
        {"x": "é"},
        {"callbacks": None, "errbacks": None, "chain": None, "chord": None},
    ]
    assert message.headers["task"] == "a.b"
    with pytest.raises(UsageError, match="not JSON"):
        encode_task("a.b", [object()], task_id="t")


# -- settings -----------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BROKER_URL", "amqp//localhost"),
        ("BROKER_URL", "http://secret:password@localhost"),
        ("BROKER_URL", "amqp://u:secret@h:port/"),
        ("OUTBOX_BATCH_SIZE", "many"),
        ("MAX_RETRIES", "-1"),
        ("CALLBACK_SECRETS", "short"),
    ],
)
def test_a_setting_that_cannot_be_read_is_named_in_one_line_without_its_secrets(
    name: str, value: str
) -> None:
    with pytest.raises(UsageError) as error:
        Settings.read({name: value})
    assert name in str(error.value)
    assert "\n" not in str(error.value)
    assert "secret:" not in str(error.value)
    assert "u:secret" not in str(error.value)


def test_without_an_address_the_broker_of_make_run_in_this_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # G4
    monkeypatch.chdir(tmp_path)
    assert Settings.read({}).broker_url == Settings().broker_url  # nothing runs here
    (tmp_path / "data/rabbitmq").mkdir(parents=True)
    (tmp_path / "data/rabbitmq/url").write_text("amqp://grading:secret@127.0.0.1:5/")
    assert Settings.read({}).broker_url == "amqp://grading:secret@127.0.0.1:5/"
    assert Settings.read({"BROKER_URL": "amqp://mine/"}).broker_url == "amqp://mine/"


def test_alarms_are_a_metric_until_somebody_clears_them(ledger: Ledger) -> None:  # G6
    registry = CollectorRegistry()
    registry.register(Alarms(ledger))
    ledger.raise_alarm("callback_not_sent", "first")
    ledger.raise_alarm("callback_not_sent", "last words")
    text = generate_latest(registry).decode()
    assert 'grading_alarms{alarm="callback_not_sent"} 2.0' in text
    assert "last words" not in text
    ledger.clear_alarms()
    assert "callback_not_sent" not in generate_latest(registry).decode()


def test_a_request_id_tells_its_submission_and_generation() -> None:
    assert parse_request_id(REQUEST) == (SUBMISSION, 1)
    for nonsense in ("", SUBMISSION, f"{SUBMISSION}.0", f"{SUBMISSION}.x", f"{SUBMISSION}.1\n"):
        with pytest.raises(ValueError):
            parse_request_id(nonsense)
