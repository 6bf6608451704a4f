"""`Client`: the HTTP API for synchronous code."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx2

from holdfast.client.core import Core, is_stream
from holdfast.client.environment import Environment
from holdfast.client.retries import RequestRetries
from holdfast.client.verbs import Verbs
from holdfast.values.duration import Duration

P = ParamSpec("P")
T = TypeVar("T")


class _BlockingVerbs(Verbs):
    """The methods over a connection that blocks, so that their coroutines never wait: `_finish` runs each at once."""

    def __init__(self, core: Core, transport: httpx2.BaseTransport | None) -> None:
        self._core = self.core = core
        self.http = httpx2.Client(transport=transport, **core.options())

    async def _request(self, request: dict[str, Any]) -> httpx2.Response:
        return self.http.request(**request)

    async def _chunks(self, request: dict[str, Any]) -> AsyncGenerator[bytes]:
        with self.http.stream(**request) as response:
            if not is_stream(response):
                raise self._core.refusal(response, response.read())
            for chunk in response.iter_bytes():
                yield chunk

    async def _sleep(self, seconds: float) -> None:
        self._core.environment.sleep(seconds)


def _finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, and return its result."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a method of the blocking client has waited")


def _plain(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Return the method of `Client` that is *verb* without `await`."""

    @wraps(verb)
    def call(self: Client, /, *args: P.args, **options: P.kwargs) -> T:
        return _finish(verb(self._verbs, *args, **options))

    return call


def _each(
    verb: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[Client, P], Iterator[T]]:
    """Return the method of `Client` that yields what *verb* yields."""

    @wraps(verb)
    def call(self: Client, /, *args: P.args, **options: P.kwargs) -> Iterator[T]:
        found: Any = verb(self._verbs, *args, **options)
        try:
            while True:
                try:
                    yield _finish(found.__anext__())
                except StopAsyncIteration:
                    return
        finally:
            _finish(found.aclose())

    return call


class Client:
    """A client for the Holdfast API at *url*. Threads may share it. Close it, or use it in a `with` block.

    After a lost connection, 429 or 503 a request is sent again, if that is safe, as *retries* says. A request
    that changes something carries an Idempotency-Key, so that it is carried out once however often it is
    sent. Operations without a method here are sent with `client.send(calls.rotate_key(…))`. The errors are
    those of `holdfast.client.errors`.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: Duration = "10s",
        retries: RequestRetries | None = None,
        transport: httpx2.BaseTransport | None = None,
        environment: Environment | None = None,
    ) -> None:
        self._verbs = _BlockingVerbs(Core(url, key, timeout, retries, environment), transport)

    def __repr__(self) -> str:
        return f"<Client of {self._verbs.core.url}>"  # without its key

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._verbs.http.close()

    send = _plain(Verbs.send)
    exchange = _plain(Verbs.exchange)
    enqueue = _plain(Verbs.enqueue)
    enqueue_many = _plain(Verbs.enqueue_many)
    job = _plain(Verbs.job)
    jobs = _each(Verbs.jobs)
    wait = _plain(Verbs.wait)
    result = _plain(Verbs.result)
    job_events = _each(Verbs.job_events)
    attempts = _plain(Verbs.attempts)
    explain = _plain(Verbs.explain)
    retry = _plain(Verbs.retry)
    cancel = _plain(Verbs.cancel)
    dead_letters = _each(Verbs.dead_letters)
    dead_letter_groups = _plain(Verbs.dead_letter_groups)
    redrive = _plain(Verbs.redrive)
    discard = _plain(Verbs.discard)
    preview = _plain(Verbs.preview)
    operate = _plain(Verbs.operate)
    operation = _plain(Verbs.operation)
    cancel_operation = _plain(Verbs.cancel_operation)
    pause = _plain(Verbs.pause)
    resume = _plain(Verbs.resume)
    queues = _plain(Verbs.queues)
    lanes = _plain(Verbs.lanes)
    breakers = _plain(Verbs.breakers)
    workers = _plain(Verbs.workers)
    health = _plain(Verbs.health)
    events = _each(Verbs.events)
