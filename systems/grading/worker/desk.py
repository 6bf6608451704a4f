"""What a worker does with one request, from its arrival to its acknowledgement.

    arrives ─► ended before? ──► its callback once more
            ├► in other hands? ─► put off until they must have let go
            └► ours ─► past its deadline? ─► dropped: no call, the main app ends it
                       ├► breaker open? ─► news "error, CIRCUIT_OPEN", put off; no retry is used up
                       ├► graded ────► end and charge in the ledger ─► callback
                       └► failed ────► put off (3 times at most, never past the deadline), or given up: dead letter and
                                       callback

Whatever is killed at any arrow: the message was not acknowledged and comes again, and the ledger knows how far it got.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from holdfast import DependencyHeld
from holdfast import celery as holdfast_celery
from holdfast.logs import Log
from systems.grading import audio
from systems.grading.messages import TASK, Buried, Callback, Grade, Request, Status, Trouble
from systems.grading.settings import Settings
from systems.grading.worker.backoff import Backoff
from systems.grading.worker.failures import Expired, Hopeless, TryAgain
from systems.grading.worker.ledger import Cost, Ended, Ledger, Taken
from systems.grading.worker.ledger import Held as InOtherHands
from systems.grading.worker.outgoing import NotSent
from systems.grading.worker.places import LedgerAway
from systems.grading.worker.provider import explained

log = Log("grading.worker")

_SHOWN = 2_000


class Asks(Protocol):
    """The provider, as it is needed here."""

    def transcribe(self, request_id: str, sound: bytes) -> str: ...
    def grade(self, request_id: str, text: str) -> tuple[Grade, int]: ...


class Sends(Protocol):
    """The broker, as it is needed here."""

    def callback(self, body: bytes, headers: dict[str, str], message_id: str) -> None: ...
    def bury(self, body: bytes, message_id: str) -> None: ...
    def put_off(self, body: bytes, headers: dict[str, Any], message_id: str, delay_ms: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    settings: Settings
    ledger: Ledger
    provider: Asks
    outgoing: Sends
    #: Stands around each call of the provider; raises `DependencyHeld` while its breaker is open.
    guard: Callable[[], AbstractContextManager[Any]]
    worker: str
    chance: Callable[[], float]
    new_holder: Callable[[], str]

    def handle(self, request: Request) -> str:
        """What became of this delivery, in a word; after it the message may be acknowledged."""
        lease = self.settings.worker_lease_ms / 1000
        found = self.ledger.take(request.request_id, self.new_holder(), lease)
        match found:
            case Ended():
                self._tell_end(request.request_id, found)
                return "repeated"
            case InOtherHands(left):
                # Not dropped: its first delivery may be the very one that those hands will never acknowledge.
                self._put_off(request, left * 1000)
                return "in other hands"
            case Taken():
                return self._try(request, found)

    # -- one try --------------------------------------------------------------------------------------------------------
    def _try(self, request: Request, taken: Taken) -> str:
        if not self._has_time(request, 0.0):
            return self._drop(request, taken, Expired())
        if taken.crashes >= self.settings.max_crashes:
            words = f"{taken.crashes} workers in a row were lost with it"
            return self._give_up(request, taken, Hopeless("WORKER_LOST", words))
        try:
            with self._kept_in_hand(taken):
                self._news(request, taken, "processing")
                grade, cost = self._grade(request)
        except Expired as expired:
            return self._drop(request, taken, expired)
        except DependencyHeld as held:
            return self._hold(request, taken, held.after.total_seconds() * 1000)
        except TryAgain as failed:
            return self._retry(request, taken, failed)
        except Hopeless as failed:
            return self._give_up(request, taken, failed)
        except NotSent:
            self.ledger.put_off(taken, 0.0, failed=False)  # we live and give it back: this is no crash
            raise
        ended = self._written(self._callback(request, taken, "completed", result=grade))
        if not self.ledger.end(taken, ended, cost=cost):
            return "lost"  # it took too long and is in other hands: theirs is the end
        self._tell_end(request.request_id, Ended(ended, None, False))
        return "completed"

    def _grade(self, request: Request) -> tuple[Grade, Cost]:
        text, transcript, seconds = request.text or "", None, 0.0
        if request.audio is not None:
            sound = _read_recording(self.settings.audio_dir / request.audio.name, request.audio.sha256)
            seconds = _decode(sound).seconds
            transcript = text = self._call(request, self.provider.transcribe, sound)
        try:
            grade, tokens = self._call(request, self.provider.grade, text)
        except Expired:
            raise Expired(None if transcript is None else Cost(0, seconds)) from None
        return msgspec.structs.replace(grade, transcript=transcript), Cost(tokens, seconds)

    def _call(self, request: Request, function: Callable[[str, Any], Any], material: Any) -> Any:
        """Call the provider once, if its breaker permits and there is time. The breaker judges by what the call raises."""
        with explained(), self.guard():
            if not self._has_time(request, 0.0):
                raise Expired
            return function(request.request_id, material)

    def _has_time(self, request: Request, wait_ms: float) -> bool:
        """Whether a call after *wait_ms* would begin before the deadline; at the deadline is in time."""
        deadline = request.deadline_at
        return deadline is None or self.ledger.now() + wait_ms / 1000 <= deadline.timestamp()

    # -- its end, or not yet ----------------------------------------------------------------------------------------------
    def _drop(self, request: Request, taken: Taken, expired: Expired) -> str:
        """The main app ends it by its deadline. What a call before has cost is charged, once, with the end of the request."""
        if expired.spent is None:
            self.ledger.put_off(taken, 0.0, failed=False)
        else:
            trouble = Trouble("TIMEOUT", "the deadline passed before it was graded")
            ended = self._written(self._callback(request, taken, "failed", error=trouble))
            if self.ledger.end(taken, ended, cost=expired.spent):
                self._tell_end(request.request_id, Ended(ended, None, False))
        log.info("grading_request.expired", request_id=request.request_id)
        return "expired"

    def _hold(self, request: Request, taken: Taken, held_ms: float) -> str:
        held = TryAgain("CIRCUIT_OPEN", "the provider is not called until it is well again")
        if not self._has_time(request, held_ms):
            return self._give_up(request, taken, held, reason="TIMEOUT")
        backoff = self._backoff()
        # Spread over the next second or so: all that was held would otherwise come back in the same moment.
        wait = min(held_ms + backoff.jitter * self.chance(), float(backoff.cap))
        return self._again(request, taken, held, wait, failed=False)

    def _retry(self, request: Request, taken: Taken, failed: TryAgain) -> str:
        if taken.retries >= self.settings.max_retries:
            return self._give_up(request, taken, failed, reason="RETRIES_EXHAUSTED")
        wait = self._backoff().after(taken.retries + 1, self.chance(), failed.asked_ms)
        if not self._has_time(request, max(wait, failed.asked_ms or 0.0)):
            return self._give_up(request, taken, failed, reason="TIMEOUT")
        return self._again(request, taken, failed, wait, failed=True)

    def _again(self, request: Request, taken: Taken, why: TryAgain, wait: float, *, failed: bool) -> str:
        """Put it off first, let it out of hand then: killed in between, the copy finds it in dead hands and waits."""
        trouble = Trouble(why.code, why.words, round(wait))
        self._put_off(request, wait)
        self.ledger.put_off(taken, wait / 1000, failed=failed)
        self._news(request, taken, "error", trouble)
        log.info(
            "grading_request.put_off", request_id=request.request_id, code=trouble.code, wait_ms=round(wait)
        )
        return "put off"

    def _give_up(
        self, request: Request, taken: Taken, failed: TryAgain | Hopeless, *, reason: str | None = None
    ) -> str:
        """End it with a dead letter; *reason* is the code of the failure where nothing else is said."""
        buried = Buried(
            request.request_id,
            request.submission_id,
            reason or failed.code,
            _attempts(taken),
            f"{failed.code}: {failed.words}",
            _now(),
            msgspec.json.encode(request).decode()[:_SHOWN],
        )
        trouble = Trouble(buried.failure_reason, failed.words)
        ended = self._written(self._callback(request, taken, "failed", error=trouble))
        record = self._written(buried)
        if not self.ledger.end(taken, ended, record):
            return "lost"
        self._tell_end(request.request_id, Ended(ended, record, False))
        log.warning("grading_request.given_up", request_id=request.request_id, reason=buried.failure_reason)
        return "given up"

    # -- telling ----------------------------------------------------------------------------------------------------------
    def _tell_end(self, request_id: str, ended: Ended) -> None:
        """Sent again as often as it is asked for; the dead letter only until it was taken once."""
        if ended.buried is not None and not ended.told:
            self.outgoing.bury(ended.buried.encode(), request_id)
        self._send_callback(request_id, ended.callback.encode())
        if not ended.told:
            self.ledger.told(request_id)

    def _news(self, request: Request, taken: Taken, status: Status, error: Trouble | None = None) -> None:
        body = self._written(self._callback(request, taken, status, error=error))
        self._send_callback(request.request_id, body.encode())

    def _callback(
        self,
        request: Request,
        taken: Taken,
        status: Status,
        *,
        result: Grade | None = None,
        error: Trouble | None = None,
    ) -> Callback:
        return Callback(
            request.request_id, request.submission_id, status, _attempts(taken), self.worker, _now(), result, error
        )  # fmt: skip

    def _send_callback(self, request_id: str, body: bytes) -> None:
        headers = holdfast_celery.sign(self.settings.callback_secrets[0], request_id, body)
        self.outgoing.callback(body, headers, request_id)

    def _put_off(self, request: Request, wait_ms: float) -> None:
        kwargs = {"request": msgspec.to_builtins(request)}
        message = holdfast_celery.encode_task(TASK, kwargs=kwargs, task_id=request.request_id)
        headers = {name: value for name, value in message.headers.items() if name != "content-type"}
        self.outgoing.put_off(message.body, headers, request.request_id, wait_ms)

    def _backoff(self) -> Backoff:
        settings = self.settings
        return Backoff(settings.retry_base_ms, settings.retry_jitter_ms, settings.retry_cap_ms)

    @staticmethod
    def _written(thing: Callback | Buried) -> str:
        return msgspec.json.encode(thing).decode()

    @contextmanager
    def _kept_in_hand(self, taken: Taken) -> Any:
        """Renew the lease while the block runs, from a thread: it dies with the process, and so does the lease."""
        lease, done = self.settings.worker_lease_ms / 1000, threading.Event()

        def renew() -> None:
            while not done.wait(lease / 3):
                try:
                    if not self.ledger.extend(taken, lease):
                        return
                except LedgerAway as error:  # while it still is ours it is tried again
                    log.warning("lease.not_renewed", request_id=taken.request_id, reason=str(error))

        thread = threading.Thread(target=renew, name=f"lease {taken.request_id}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def _read_recording(file: Path, sha256: str) -> bytes:
    try:
        sound = file.read_bytes()
    except FileNotFoundError:
        raise Hopeless("AUDIO_MISSING", "the recording is no longer there") from None
    except OSError as error:
        raise TryAgain("AUDIO_UNREADABLE", f"the recording cannot be read ({error.strerror})") from None
    if hashlib.sha256(sound).hexdigest() != sha256:
        raise Hopeless("AUDIO_CHANGED", "the recording is not the one that was submitted")
    return sound


def _decode(sound: bytes) -> audio.Recording:
    try:
        return audio.decode(sound)
    except audio.Undecodable as error:
        raise Hopeless("AUDIO_DECODE_ERROR", f"the recording cannot be decoded: {error}") from None


def _attempts(taken: Taken) -> int:
    return taken.retries + taken.crashes + 1


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
