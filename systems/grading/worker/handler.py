"""Handle one delivery of a request, until the message may be acknowledged.

    arrives ─► has ended? ──────────► send its callback again
            ├► held by a worker? ───► put off until that lease has run out
            └► taken ─► deadline passed? ─► drop: no call, the main app ends it
                        ├► breaker open? ─► callback "error, CIRCUIT_OPEN", put off; uses up no retry
                        ├► graded ────────► end and charge in the ledger ─► callback
                        └► failed ────────► put off (3 times at most, never past the deadline), or give up:
                                            dead letter and callback

A worker may be killed at any arrow: the message was not acknowledged, so it comes again, and the ledger has
its progress.
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
from holdfast.logging import Log
from systems.grading import audio
from systems.grading.messages import TASK, Callback, DeadLetter, Grade, Request, Status, Trouble
from systems.grading.settings import Settings
from systems.grading.worker.backoff import Backoff
from systems.grading.worker.failures import Expired, PermanentFailure, TransientFailure
from systems.grading.worker.ledger import Cost, Ended, Held, Ledger, Taken
from systems.grading.worker.ledger_stores import LedgerUnavailable
from systems.grading.worker.provider import translated_errors
from systems.grading.worker.sender import NotSent

log = Log("grading.worker")

#: The letters of a request that a dead letter shows.
_SHOWN = 2_000


class Grader(Protocol):
    """The methods of `Provider` that a handler calls."""

    def transcribe(self, request_id: str, sound: bytes) -> str: ...
    def grade(self, request_id: str, text: str) -> tuple[Grade, int]: ...


class MessageSender(Protocol):
    """The methods of `Sender` that a handler calls."""

    def callback(self, body: bytes, headers: dict[str, str], message_id: str) -> None: ...
    def dead_letter(self, body: bytes, message_id: str) -> None: ...
    def put_off(self, body: bytes, headers: dict[str, Any], message_id: str, delay_ms: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHandler:
    """Handles one delivery of a request."""

    settings: Settings
    ledger: Ledger
    provider: Grader
    sender: MessageSender
    #: Wraps each call of the provider, and raises `DependencyHeld` while its breaker is open.
    guard: Callable[[], AbstractContextManager[Any]]
    worker: str
    chance: Callable[[], float]
    new_holder: Callable[[], str]

    def handle(self, request: Request) -> str:
        """Handle the delivery and return its outcome. The message may then be acknowledged.

        Raises:
            NotSent: The broker did not take a message.
            LedgerUnavailable: The ledger does not answer.
        """
        lease = self.settings.worker_lease_ms / 1000
        entry = self.ledger.take(request.request_id, self.new_holder(), lease)
        match entry:
            case Ended():
                self._report_end(request.request_id, entry)
                return "repeated"
            case Held(left):
                # Not dropped: the holder may have died with the first delivery, so this copy may have to be
                # done.
                self._put_off(request, left * 1000)
                return "held"
            case Taken():
                return self._attempt(request, entry)

    # -- one attempt
    # ----------------------------------------------------------------------------------------------------
    def _attempt(self, request: Request, taken: Taken) -> str:
        if not self._has_time(request, 0.0):
            return self._drop(request, taken, Expired())
        if taken.crashes >= self.settings.max_crashes:
            reason = f"{taken.crashes} workers in a row were lost while they handled it"
            return self._give_up(request, taken, PermanentFailure("WORKER_LOST", reason))
        try:
            with self._renewed_lease(taken):
                self._report_progress(request, taken, "processing")
                grade, cost = self._grade(request)
        except Expired as expired:
            return self._drop(request, taken, expired)
        except DependencyHeld as held:
            return self._hold(request, taken, held.after.total_seconds() * 1000)
        except TransientFailure as failed:
            return self._retry(request, taken, failed)
        except PermanentFailure as failed:
            return self._give_up(request, taken, failed)
        except NotSent:
            self.ledger.put_off(
                taken, 0.0, failed=False
            )  # release it, so that this does not count as a crash
            raise
        ended = self._encode(self._callback(request, taken, "completed", result=grade))
        if not self.ledger.end(taken, ended, cost=cost):
            return "lost"  # the lease ran out and another worker took the request
        self._report_end(request.request_id, Ended(ended, None, False))
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
        """Call the provider once, if its breaker permits and there is time.

        The errors of the call count for the breaker.
        """
        with translated_errors(), self.guard():
            if not self._has_time(request, 0.0):
                raise Expired
            return function(request.request_id, material)

    def _has_time(self, request: Request, wait_ms: float) -> bool:
        """Return whether a call after *wait_ms* would begin at the deadline or earlier."""
        deadline = request.deadline_at
        return deadline is None or self.ledger.now() + wait_ms / 1000 <= deadline.timestamp()

    # -- the end of an attempt
    # --------------------------------------------------------------------------------------------
    def _drop(self, request: Request, taken: Taken, expired: Expired) -> str:
        """Drop a request whose deadline has passed. The main app ends it.

        If an earlier call had a cost, the request ends here, so that it is charged once.
        """
        if expired.spent is None:
            self.ledger.put_off(taken, 0.0, failed=False)
        else:
            trouble = Trouble("TIMEOUT", "the deadline passed before it was graded")
            ended = self._encode(self._callback(request, taken, "failed", error=trouble))
            if self.ledger.end(taken, ended, cost=expired.spent):
                self._report_end(request.request_id, Ended(ended, None, False))
        log.info("grading_request.expired", request_id=request.request_id)
        return "expired"

    def _hold(self, request: Request, taken: Taken, held_ms: float) -> str:
        held = TransientFailure("CIRCUIT_OPEN", "the provider is not called while its breaker is open")
        if not self._has_time(request, held_ms):
            return self._give_up(request, taken, held, reason="TIMEOUT")
        backoff = self._backoff()
        # Jitter, or all held requests would come back at the same time.
        wait = min(held_ms + backoff.jitter * self.chance(), float(backoff.cap))
        return self._put_off_taken(request, taken, held, wait, failed=False)

    def _retry(self, request: Request, taken: Taken, failed: TransientFailure) -> str:
        if taken.retries >= self.settings.max_retries:
            return self._give_up(request, taken, failed, reason="RETRIES_EXHAUSTED")
        wait = self._backoff().after(taken.retries + 1, self.chance(), failed.asked_ms)
        if not self._has_time(request, max(wait, failed.asked_ms or 0.0)):
            return self._give_up(request, taken, failed, reason="TIMEOUT")
        return self._put_off_taken(request, taken, failed, wait, failed=True)

    def _put_off_taken(
        self, request: Request, taken: Taken, failure: TransientFailure, wait: float, *, failed: bool
    ) -> str:
        """Send the request to a wait queue, then release it in the ledger.

        If the worker is killed in between, the copy finds the request held and waits until the lease has run
        out.
        """
        trouble = Trouble(failure.code, failure.reason, round(wait))
        self._put_off(request, wait)
        self.ledger.put_off(taken, wait / 1000, failed=failed)
        self._report_progress(request, taken, "error", trouble)
        log.info(
            "grading_request.put_off", request_id=request.request_id, code=trouble.code, wait_ms=round(wait)
        )
        return "put off"

    def _give_up(
        self,
        request: Request,
        taken: Taken,
        failed: TransientFailure | PermanentFailure,
        *,
        reason: str | None = None,
    ) -> str:
        """End the request with a dead letter. *reason* is its code; by default that of the failure."""
        letter = DeadLetter(
            request.request_id,
            request.submission_id,
            reason or failed.code,
            _attempts(taken),
            f"{failed.code}: {failed.reason}",
            _now(),
            msgspec.json.encode(request).decode()[:_SHOWN],
        )
        trouble = Trouble(letter.failure_reason, failed.reason)
        ended = self._encode(self._callback(request, taken, "failed", error=trouble))
        encoded = self._encode(letter)
        if not self.ledger.end(taken, ended, encoded):
            return "lost"
        self._report_end(request.request_id, Ended(ended, encoded, False))
        log.warning("grading_request.given_up", request_id=request.request_id, reason=letter.failure_reason)
        return "given up"

    # -- messages
    # ---------------------------------------------------------------------------------------------------------
    def _report_end(self, request_id: str, ended: Ended) -> None:
        """Send the last callback, with every repeated delivery.

        Send the dead letter until the broker has taken it once.
        """
        if ended.dead_letter is not None and not ended.reported:
            self.sender.dead_letter(ended.dead_letter.encode(), request_id)
        self._send_callback(request_id, ended.callback.encode())
        if not ended.reported:
            self.ledger.mark_reported(request_id)

    def _report_progress(
        self, request: Request, taken: Taken, status: Status, error: Trouble | None = None
    ) -> None:
        body = self._encode(self._callback(request, taken, status, error=error))
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
        self.sender.callback(body, headers, request_id)

    def _put_off(self, request: Request, wait_ms: float) -> None:
        kwargs = {"request": msgspec.to_builtins(request)}
        message = holdfast_celery.encode_task(TASK, kwargs=kwargs, task_id=request.request_id)
        headers = {name: value for name, value in message.headers.items() if name != "content-type"}
        self.sender.put_off(message.body, headers, request.request_id, wait_ms)

    def _backoff(self) -> Backoff:
        settings = self.settings
        return Backoff(settings.retry_base_ms, settings.retry_jitter_ms, settings.retry_cap_ms)

    @staticmethod
    def _encode(message: Callback | DeadLetter) -> str:
        return msgspec.json.encode(message).decode()

    @contextmanager
    def _renewed_lease(self, taken: Taken) -> Any:
        """Renew the lease in a thread while the block runs. If the process dies, the lease runs out."""
        lease, done = self.settings.worker_lease_ms / 1000, threading.Event()

        def renew() -> None:
            while not done.wait(lease / 3):
                try:
                    if not self.ledger.extend(taken, lease):
                        return
                except LedgerUnavailable as error:  # try again: the lease may still hold
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
        raise PermanentFailure("AUDIO_MISSING", "the recording no longer exists") from None
    except OSError as error:
        raise TransientFailure(
            "AUDIO_UNREADABLE", f"the recording cannot be read ({error.strerror})"
        ) from None
    if hashlib.sha256(sound).hexdigest() != sha256:
        raise PermanentFailure("AUDIO_CHANGED", "the recording is not the one that was submitted")
    return sound


def _decode(sound: bytes) -> audio.Recording:
    try:
        return audio.decode(sound)
    except audio.Undecodable as error:
        raise PermanentFailure("AUDIO_DECODE_ERROR", f"the recording cannot be decoded: {error}") from None


def _attempts(taken: Taken) -> int:
    return taken.retries + taken.crashes + 1


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
