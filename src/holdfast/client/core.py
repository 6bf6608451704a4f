"""What the client for plain code and the one for async code share: everything but sending and waiting."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec

from holdfast.client import calls
from holdfast.client.call import IDEMPOTENCY_KEY, JSON, Call, Request, StreamCall
from holdfast.client.environment import Environment, RealEnvironment
from holdfast.client.errors import BadAnswer, ClientError, Unreachable, problem_of
from holdfast.client.event_stream import MEDIA_TYPE, StreamReader
from holdfast.client.retries import RequestRetries, pause_seconds
from holdfast.client.types import JobView, MatchCount, OperationView
from holdfast.domain.duration import Duration, duration
from holdfast.errors import UsageError

T = TypeVar("T")

PREFIX = "/api/v1"
#: How many rows of a list that is read whole one page holds.
PAGE = 500
#: Of the states of a job, those that are ends.
ENDED = frozenset({"complete", "failed", "cancelled"})
#: A quiet stream gives a sign of life every 15 s: one that is silent for so long is dead.
SILENT_SECONDS = 45.0
_FIRST_LOOK, _SLOWEST_LOOK = 0.05, 2.0
#: Then nothing has reached the server.
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class ApiResponse(NamedTuple, Generic[T]):
    """An answer with what came beside it: `headers["etag"]` is what `if_match` takes."""

    value: T
    status: int
    headers: Mapping[str, str]


class Core:
    """Builds requests, reads answers, decides what is sent again. Does no I/O."""

    def __init__(
        self,
        url: str,
        key: str | None,
        timeout: Duration,
        patience: RequestRetries | None,
        surroundings: Environment | None,
    ) -> None:
        self.url = _base(url)
        self.world = surroundings or RealEnvironment()
        self._key = _checked(key)
        self._patience = patience or RequestRetries()
        self._timeout = duration(timeout).total_seconds()

    def options(self) -> dict[str, Any]:
        """For httpx. Redirects are not followed: the key is for one address."""
        headers = {"Accept": JSON, "User-Agent": "holdfast-client"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        # Reading this machine's certificates takes 50 ms: plain HTTP needs none, and is given a context that trusts nobody.
        verify = self.url.startswith("https:") or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        timeout = httpx2.Timeout(self._timeout)
        return {"headers": headers, "timeout": timeout, "verify": verify, "follow_redirects": False}

    def request(self, call: Call[Any]) -> dict[str, Any]:
        """What every attempt at *call* sends; the same Idempotency-Key each time."""
        sent = self._request(call)
        if call.takes_key:
            sent["headers"].setdefault(IDEMPOTENCY_KEY, self.world.new_key())
        return sent

    def stream_request(self, call: StreamCall, reader: StreamReader) -> dict[str, Any]:
        sent = self._request(call)
        sent["headers"]["Accept"] = MEDIA_TYPE
        if reader.last is not None:
            sent["headers"]["Last-Event-ID"] = reader.last
        sent["timeout"] = httpx2.Timeout(self._timeout, read=SILENT_SECONDS)
        return sent

    def _request(self, call: Request) -> dict[str, Any]:
        headers, content = dict(call.given_headers()), call.content()
        if content is not None:
            headers["Content-Type"] = JSON
        return {
            "method": call.method,
            "url": self.url + call.path,
            "params": call.pairs() or None,
            "headers": headers,
            "content": content,
        }

    # -- answers ------------------------------------------------------------------------------------------------------
    def read(self, call: Call[T], came: httpx2.Response) -> ApiResponse[T]:
        """The answer; an error for what is none."""
        media = media_of(came)
        if came.status_code not in call.answers or media == "application/problem+json":
            raise self.refusal(came, came.content)
        kind = call.answers[came.status_code]
        if kind is None:
            value: Any = None
        elif kind is str:
            value = came.text
        elif media == JSON:
            try:
                value = msgspec.json.decode(came.content, type=kind)
            except msgspec.DecodeError as error:
                raise BadAnswer(
                    f"the answer is not as this client knows it ({error}); use a client of the server's version"
                ) from None
        else:
            raise self.refusal(came, came.content)
        return ApiResponse(value, came.status_code, came.headers)

    def refusal(self, came: httpx2.Response, content: bytes) -> ClientError:
        return problem_of(came.status_code, media_of(came), content, _seconds(came))

    # -- going on -----------------------------------------------------------------------------------------------------
    def pause(self, call: Call[Any], attempt: int, error: ClientError | httpx2.RequestError) -> float:
        """How long to wait before *call* is sent again; where it is not, the error is raised."""
        told = self.told(error)
        seconds = pause_seconds(
            self._patience,
            attempt,
            told,
            was_sent=not isinstance(error, _UNSENT),
            is_repeatable=call.is_repeatable,
            chance=self.world.random(),
        )
        if seconds is None:
            _raise(told, error)
        return seconds

    def stream_pause(
        self, reader: StreamReader, attempt: int, error: ClientError | httpx2.RequestError | None
    ) -> float:
        """The same for a stream, which may always come back. *attempt* counts those that brought nothing; where there is
        no *error* the server has ended it."""
        if error is None:
            return reader.retry_seconds
        told = self.told(error)
        seconds = pause_seconds(
            self._patience,
            attempt,
            told,
            was_sent=True,
            is_repeatable=True,
            chance=self.world.random(),
            tries=None if reader.last is None else self._patience.stream_tries,
        )
        if seconds is None:
            _raise(told, error)
        return max(seconds, reader.retry_seconds)

    def told(self, error: ClientError | httpx2.RequestError) -> ClientError:
        if isinstance(error, ClientError):
            return error
        reason = type(error).__name__
        return Unreachable(f"no answer from {self.url} ({reason}); check that it runs and can be reached")


class ResultPoll:
    """Looks at a job again and again, at longer and longer intervals, until it has ended or time is up."""

    def __init__(self, world: Environment, job_id: str, timeout: Duration | None) -> None:
        self._world, self._job_id, self._timeout = world, job_id, timeout
        self._end = None if timeout is None else world.monotonic() + duration(timeout).total_seconds()
        self._pause = _FIRST_LOOK

    def next_look(self, job: JobView) -> float | None:
        """In how many seconds to look again; None: it has ended. `TimeoutError` when time is up."""
        if job.state in ENDED:
            return None
        left = self._pause if self._end is None else self._end - self._world.monotonic()
        if left <= 0:
            raise TimeoutError(f"the job {self._job_id} is still {job.state} after {self._timeout}")
        pause, self._pause = min(self._pause, left), min(self._pause * 1.5, _SLOWEST_LOOK)
        return pause


def media_of(came: httpx2.Response) -> str:
    return came.headers.get("content-type", "").partition(";")[0].strip().lower()


def _raise(told: ClientError, error: Exception) -> NoReturn:
    if told is error:
        raise told
    raise told from error


def _seconds(came: httpx2.Response) -> float | None:
    """`Retry-After` in seconds; its other form, a date, is read as if it were missing: clocks differ."""
    given = came.headers.get("retry-after", "")
    return float(given) if given.isascii() and given.isdecimal() and len(given) < 10 else None


def _base(url: str) -> str:
    try:
        parts = urlsplit(url.strip())
        host = parts.hostname
    except ValueError:
        host = None
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise UsageError(
            'the URL of an API is written "https://jobs.example.com", with a path where it is mounted'
        )
    if parts.username or parts.password:
        raise UsageError("a URL must not hold a secret; give the key as key=…")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix(PREFIX)}"


def _checked(key: str | None) -> str | None:
    if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key and key):
        raise UsageError("this is no key; give the secret that `holdfast keys create` showed")
    return key


# -- what verbs of both clients do with answers -------------------------------------------------------------------------
def stream_call(job_id: str | None, kind: str | list[str] | None, owner: str | None) -> StreamCall:
    kinds = [] if kind is None else [kind] if isinstance(kind, str) else list(kind)
    if job_id is not None:
        if owner is not None:
            raise UsageError("events of one job have one owner; leave out owner=…")
        return calls.stream_job_events(job_id, kind=kinds)
    return calls.stream_events(kind=kinds, owner=owner)


def no_operation(told: MatchCount | OperationView) -> MatchCount:
    if isinstance(told, MatchCount):
        return told
    raise BadAnswer(
        "the server began an operation that was only to be counted; cancel it, and update the server"
    )


def no_counting(told: MatchCount | OperationView) -> OperationView:
    if isinstance(told, OperationView):
        return told
    raise BadAnswer("the server only counted; update the server")
