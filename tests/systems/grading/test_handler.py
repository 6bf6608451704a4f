"""What a worker does with one request: which calls it makes by its deadline, what it charges, and what it tells."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import DependencyHeld
from systems.grading.audio import make_recording
from systems.grading.messages import Audio, Grade, Request, request_id
from systems.grading.settings import Settings
from systems.grading.worker.failures import TransientFailure
from systems.grading.worker.handler import RequestHandler
from systems.grading.worker.ledger import Cost, Ended, Ledger, Taken

SUBMISSION = "01a1e359-297e-75e7-bba9-287684a79c65"
REQUEST = request_id(SUBMISSION, 1)
NOW = 1_800_000_000.0
SECRET = "a secret of these tests alone"


class World:
    """The provider, the broker and the clock of one test."""

    def __init__(self, folder: Path, where: Path | str) -> None:
        self.now, self.folder = NOW, folder
        self.ledger = Ledger(where, lambda: self.now)
        self.calls: list[str] = []
        self.takes: list[float] = []  #: seconds of each call; none are left: no time
        self.raises: Exception | None = None
        self.guard: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
        self.sent: list[dict[str, Any]] = []
        self.letters: list[dict[str, Any]] = []
        self.waits: list[float] = []

    # -- the provider
    def transcribe(self, request_id: str, sound: bytes) -> str:
        self._called("transcribe")
        return "I speak."

    def grade(self, request_id: str, text: str) -> tuple[Grade, int]:
        self._called("grade")
        return Grade(7.0, {"task": 7.0}, "Well done."), 89

    def _called(self, what: str) -> None:
        self.calls.append(what)
        self.now += self.takes.pop(0) if self.takes else 0.0
        if self.raises is not None:
            raise self.raises

    # -- the broker
    def callback(self, body: bytes, headers: dict[str, str], message_id: str) -> None:
        self.sent.append(json.loads(body))

    def dead_letter(self, body: bytes, message_id: str) -> None:
        self.letters.append(json.loads(body))

    def put_off(self, body: bytes, headers: dict[str, Any], message_id: str, delay_ms: float) -> None:
        [_, arguments, _] = json.loads(body)
        assert arguments["request"]["deadlineAt"]  # it travels on
        self.waits.append(delay_ms)

    # -- the worker
    def handle(self, request: Request) -> str:
        handler = RequestHandler(
            settings=Settings(audio_dir=self.folder, callback_secrets=(SECRET,)),
            ledger=self.ledger,
            provider=self,
            sender=self,
            guard=self.guard,
            worker="celery@test",
            chance=lambda: 0.0,
            new_holder=lambda: "holder",
        )
        return handler.handle(request)

    def writing(self, seconds: float) -> Request:
        """A request whose deadline is *seconds* from now."""
        return Request(REQUEST, SUBMISSION, "writing", "It rains.", deadline_at=self._in(seconds))

    def speaking(self, seconds: float) -> Request:
        sound = make_recording("I speak.", seconds=0.5)
        name = f"{SUBMISSION}.wav"
        (self.folder / name).write_bytes(sound)
        audio = Audio(name, hashlib.sha256(sound).hexdigest(), len(sound))
        return Request(REQUEST, SUBMISSION, "speaking", audio=audio, deadline_at=self._in(seconds))

    def _in(self, seconds: float) -> datetime:
        return datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=seconds)

    @property
    def statuses(self) -> list[str]:
        return [one["status"] for one in self.sent]


@pytest.fixture(params=["file", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    where: Path | str = tmp_path / "ledger.db"
    if request.param == "postgres":
        where = str(request.getfixturevalue("postgres_url"))
    made = World(tmp_path, where)
    with contextlib.closing(made.ledger):
        yield made


def test_after_the_deadline_there_is_no_call_no_charge_and_no_callback(world: World) -> None:  # E15 G3
    request = world.writing(10)
    world.now += 10.001
    assert world.handle(request) == "expired"
    assert (world.calls, world.sent, world.letters, world.waits) == ([], [], [], [])
    assert world.ledger.charges() == {}
    assert isinstance(world.ledger.take(REQUEST, "another", 5), Taken)  # and no worker holds it


def test_at_the_deadline_is_in_time(world: World) -> None:  # E15
    request = world.writing(10)
    world.now += 10
    assert world.handle(request) == "completed"
    assert world.calls == ["grade"]


def test_a_call_under_way_at_the_deadline_is_charged_once_and_its_result_sent(world: World) -> None:  # E15 G6
    world.takes = [30]
    request = world.writing(10)
    assert world.handle(request) == "completed"
    assert world.statuses == ["processing", "completed"]
    assert world.ledger.charges() == {REQUEST: Cost(89, 0.0)}
    assert world.handle(request) == "repeated"  # after the deadline its end is sent again, without a call
    assert world.statuses == ["processing", "completed", "completed"]
    assert world.calls == ["grade"]
    assert world.ledger.charges() == {REQUEST: Cost(89, 0.0)}


def test_no_second_call_begins_after_the_deadline_and_the_first_is_charged(world: World) -> None:  # E15
    world.takes = [30]
    request = world.speaking(10)
    assert world.handle(request) == "expired"
    assert world.calls == ["transcribe"]
    assert world.ledger.charges() == {REQUEST: Cost(0, 0.5)}
    assert world.statuses == ["processing", "failed"]
    assert world.sent[-1]["error"]["code"] == "TIMEOUT"
    assert world.letters == []
    found = world.ledger.take(REQUEST, "another", 5)
    assert isinstance(found, Ended)


@pytest.mark.parametrize("asked", [1_000_000.0, 11_000.0])
def test_a_retry_after_beyond_the_deadline_ends_it_at_once(world: World, asked: float) -> None:  # E15 G3
    world.raises = TransientFailure("PROVIDER_THROTTLED", "the provider asked to wait", asked_ms=asked)
    assert world.handle(world.writing(10)) == "given up"
    assert world.waits == []
    assert world.statuses == ["processing", "failed"]
    assert world.sent[-1]["error"]["code"] == "TIMEOUT"
    [letter] = world.letters
    assert (letter["failureReason"], letter["attemptsMade"]) == ("TIMEOUT", 1)
    assert letter["lastError"] == "PROVIDER_THROTTLED: the provider asked to wait"
    assert world.ledger.charges() == {}


def test_a_retry_after_before_the_deadline_is_honored(world: World) -> None:  # G3
    world.raises = TransientFailure("PROVIDER_THROTTLED", "the provider asked to wait", asked_ms=9_000)
    assert world.handle(world.writing(10)) == "put off"
    assert world.waits == [9_000]
    assert world.statuses == ["processing", "error"]


def held_for(seconds: float) -> Callable[[], AbstractContextManager[Any]]:
    def guard() -> AbstractContextManager[Any]:
        raise DependencyHeld("provider", timedelta(seconds=seconds))

    return guard


def test_an_open_breaker_makes_no_call_sends_circuit_open_and_uses_no_retry(world: World) -> None:  # G7
    world.guard = held_for(7)
    for _ in range(5):
        assert world.handle(world.writing(60)) == "put off"
        world.now += 8
    assert world.calls == []
    assert world.waits == [7_000] * 5
    assert {one["error"]["code"] for one in world.sent if one["status"] == "error"} == {"CIRCUIT_OPEN"}
    found = world.ledger.take(REQUEST, "another", 5)
    assert isinstance(found, Taken)
    assert found.retries == 0


def test_a_breaker_that_stays_open_past_the_deadline_ends_it_at_once(world: World) -> None:  # E15 G7
    world.guard = held_for(30)
    assert world.handle(world.writing(10)) == "given up"
    assert (world.calls, world.waits) == ([], [])
    [letter] = world.letters
    assert letter["failureReason"] == "TIMEOUT"
    assert letter["lastError"].startswith("CIRCUIT_OPEN")


def test_a_deadline_that_passes_while_the_breaker_is_asked_stops_the_call(world: World) -> None:  # E15
    """The look at the breaker may take a while: the deadline is compared right before the call."""

    @contextlib.contextmanager
    def slow() -> Iterator[None]:
        world.now += 11
        yield

    world.guard = slow
    assert world.handle(world.writing(10)) == "expired"
    assert world.calls == []
    assert world.ledger.charges() == {}


def test_a_request_without_a_deadline_is_graded(world: World) -> None:
    request = Request(REQUEST, SUBMISSION, "writing", "It rains.")
    assert world.handle(request) == "completed"
