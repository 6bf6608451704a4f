"""The common part of `Client` and `AsyncClient`: everything except sending and waiting."""

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
from holdfast.client.types import JobView, OperationPreview, OperationView
from holdfast.errors import UsageError
from holdfast.values.duration import Duration, duration

T = TypeVar("T")

PREFIX = "/api/v1"
#: The page size for lists that are read completely.
PAGE = 500
#: The final states of a job.
ENDED = frozenset({"complete", "failed", "cancelled"})
#: The server sends a keep-alive every 15 s, so a stream that is silent for this long is dead.
SILENT_SECONDS = 45.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
#: The errors after which no request has reached the server.
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class ApiResponse(NamedTuple, Generic[T]):
    """A response: its decoded body, status and headers. `headers["etag"]` is the value for `if_match`."""

    value: T
    status: int
    headers: Mapping[str, str]


class Core:
    """Builds requests, reads responses and decides what is sent again. It does no I/O."""

    def __init__(
        self,
        url: str,
        key: str | None,
        timeout: Duration,
        retries: RequestRetries | None,
        environment: Environment | None,
    ) -> None:
        self.url = _base_url(url)
        self.environment = environment or RealEnvironment()
        self._key = _checked_key(key)
        self._retries = retries or RequestRetries()
        self._timeout = duration(timeout).total_seconds()

    def options(self) -> dict[str, Any]:
        """Return the options for the httpx client.

        Redirects are not followed: the key is for one address only.
        """
        headers = {"Accept": JSON, "User-Agent": "holdfast-client"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        # Reading the system's certificates takes 50 ms. Plain HTTP needs none, so it gets an empty context.
        verify = self.url.startswith("https:") or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        timeout = httpx2.Timeout(self._timeout)
        return {"headers": headers, "timeout": timeout, "verify": verify, "follow_redirects": False}

    def request(self, call: Call[Any]) -> dict[str, Any]:
        """Return the request of *call* for httpx. Every attempt sends it with the same Idempotency-Key."""
        sent = self._request(call)
        if call.takes_key:
            sent["headers"].setdefault(IDEMPOTENCY_KEY, self.environment.new_key())
        return sent

    def stream_request(self, call: StreamCall, reader: StreamReader) -> dict[str, Any]:
        """Return the request for httpx that opens a stream after the last event of *reader*."""
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

    # -- responses ----------------------------------------------------------------------------------------------------
    def read(self, call: Call[T], response: httpx2.Response) -> ApiResponse[T]:
        """Return the decoded response.

        Raises:
            ClientError: The server refused the request, or the response is not one of the API.
        """
        media = media_of(response)
        if response.status_code not in call.answers or media == "application/problem+json":
            raise self.refusal(response, response.content)
        kind = call.answers[response.status_code]
        if kind is None:
            value: Any = None
        elif kind is str:
            value = response.text
        elif media == JSON:
            try:
                value = msgspec.json.decode(response.content, type=kind)
            except msgspec.DecodeError as error:
                raise BadAnswer(
                    f"this client cannot read the response ({error}); use a client of the server's version"
                ) from None
        else:
            raise self.refusal(response, response.content)
        return ApiResponse(value, response.status_code, response.headers)

    def refusal(self, response: httpx2.Response, content: bytes) -> ClientError:
        """Return the error that a response with this *content* stands for."""
        return problem_of(response.status_code, media_of(response), content, _seconds(response))

    # -- retries ------------------------------------------------------------------------------------------------------
    def pause(self, call: Call[Any], attempt: int, error: ClientError | httpx2.RequestError) -> float:
        """Return the seconds to wait before *call* is sent again, or raise the error if it must not be."""
        raised = self.client_error(error)
        seconds = pause_seconds(
            self._retries,
            attempt,
            raised,
            was_sent=not isinstance(error, _UNSENT),
            is_repeatable=call.is_repeatable,
            chance=self.environment.random(),
        )
        if seconds is None:
            _raise(raised, error)
        return seconds

    def stream_pause(
        self, reader: StreamReader, attempt: int, error: ClientError | httpx2.RequestError | None
    ) -> float:
        """Return the seconds to wait before a stream is opened again, or raise the error if it is not.

        *attempt* counts the connections in a row that brought nothing. Without an *error* the server ended
        the stream.
        """
        if error is None:
            return reader.retry_seconds
        raised = self.client_error(error)
        seconds = pause_seconds(
            self._retries,
            attempt,
            raised,
            was_sent=True,
            is_repeatable=True,
            chance=self.environment.random(),
            tries=None if reader.last is None else self._retries.stream_tries,
        )
        if seconds is None:
            _raise(raised, error)
        return max(seconds, reader.retry_seconds)

    def client_error(self, error: ClientError | httpx2.RequestError) -> ClientError:
        """Return *error*, or an `Unreachable` for an error of httpx."""
        if isinstance(error, ClientError):
            return error
        reason = type(error).__name__
        return Unreachable(f"no answer from {self.url} ({reason}); check that it runs and can be reached")


class ResultPoll:
    """The pauses between reads of a job until it has ended: each is longer than the one before."""

    def __init__(self, environment: Environment, job_id: str, timeout: Duration | None) -> None:
        self._environment, self._job_id, self._timeout = environment, job_id, timeout
        self._end = None if timeout is None else environment.monotonic() + duration(timeout).total_seconds()
        self._pause = _FIRST_PAUSE

    def next_pause(self, job: JobView) -> float | None:
        """Return the seconds until the next read, or None if *job* has ended.

        Raises:
            TimeoutError: The timeout is over and it has not ended.
        """
        if job.state in ENDED:
            return None
        left = self._pause if self._end is None else self._end - self._environment.monotonic()
        if left <= 0:
            raise TimeoutError(f"the job {self._job_id} is still {job.state} after {self._timeout}")
        pause, self._pause = min(self._pause, left), min(self._pause * 1.5, _LONGEST_PAUSE)
        return pause


def media_of(response: httpx2.Response) -> str:
    """Return the media type of a response, in lower case and without parameters."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_stream(response: httpx2.Response) -> bool:
    """Return whether a response is a stream of events."""
    return response.status_code == 200 and media_of(response) == MEDIA_TYPE


def _raise(raised: ClientError, error: Exception) -> NoReturn:
    if raised is error:
        raise raised
    raise raised from error


def _seconds(response: httpx2.Response) -> float | None:
    """Return `Retry-After` in seconds. A date counts as missing, because clocks differ."""
    given = response.headers.get("retry-after", "")
    return float(given) if given.isascii() and given.isdecimal() and len(given) < 10 else None


def _base_url(url: str) -> str:
    try:
        parts = urlsplit(url.strip())
        host = parts.hostname
    except ValueError:
        host = None
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise UsageError(
            'the URL of the API must look like "https://jobs.example.com", with the path of its mount if it has one'
        )
    if parts.username or parts.password:
        raise UsageError("a URL must not hold a secret; give the key as key=…")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix(PREFIX)}"


def _checked_key(key: str | None) -> str | None:
    if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key and key):
        raise UsageError("this is not a key; give the secret that `holdfast keys create` showed")
    return key


# -- used by the methods of both clients --------------------------------------------------------------------------------
def stream_call(job_id: str | None, kind: str | list[str] | None, owner: str | None) -> StreamCall:
    """Return the call that streams the events of one job, or of all.

    Raises:
        UsageError: Both *job_id* and *owner* are given.
    """
    kinds = [] if kind is None else [kind] if isinstance(kind, str) else list(kind)
    if job_id is not None:
        if owner is not None:
            raise UsageError("events of one job have one owner; leave out owner=…")
        return calls.stream_job_events(job_id, kind=kinds)
    return calls.stream_events(kind=kinds, owner=owner)


def require_preview(answer: OperationPreview | OperationView) -> OperationPreview:
    """Return *answer* if it is a preview, as a dry run expects. Raise `BadAnswer` otherwise."""
    if isinstance(answer, OperationPreview):
        return answer
    raise BadAnswer("the server began an operation instead of a dry run; cancel it, and update the server")


def require_operation(answer: OperationPreview | OperationView) -> OperationView:
    """Return *answer* if it is an operation. Raise `BadAnswer` otherwise."""
    if isinstance(answer, OperationView):
        return answer
    raise BadAnswer("the server only counted; update the server")
