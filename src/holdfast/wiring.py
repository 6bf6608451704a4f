"""The only module that picks a concrete store, broker, transport, place for artifacts, clock, source of ids and threads. All others are given them."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import Any
from urllib.parse import unquote

from holdfast import app_secret
from holdfast.engine.dispatch import Dispatch
from holdfast.engine.outbound_calls import OutboundCalls
from holdfast.engine.ports import ArtifactBackend, Store, Transaction
from holdfast.errors import UsageError
from holdfast.jobs.job import JobId
from holdfast.jobs.machine import Clock, Ids, Threads
from holdfast.outbox.external_tasks import ExternalTaskStore
from holdfast.outbox.transport import Transport
from holdfast.tasks.settings import DEFAULT_URL, Settings
from holdfast.values.addresses import networks
from holdfast.values.urls import parts_of, scheme_of
from holdfast.values.validation import typed


@cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux: the moment of the boot, to the minute, is the best there is
        return f"boot-{round((time.time() - time.monotonic()) / 60)}"


class SystemClock:
    monotonic = staticmethod(time.monotonic)
    now = staticmethod(partial(datetime.now, UTC))
    boot_id = staticmethod(_boot_id)
    sleep = staticmethod(asyncio.sleep)


class SystemRng:
    def random(self) -> float:
        return random.random()


class SystemIds:
    def __init__(self) -> None:
        import uuid_utils

        self._uuid7 = uuid_utils.uuid7

    def job_id(self) -> JobId:
        return JobId(str(self._uuid7()))

    def worker_name(self) -> str:
        return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"

    def secret(self) -> bytes:
        return os.urandom(32)


def new_job_id() -> JobId:
    """Return a new job id, for `task.options(id=…)`: unguessable, and growing with time."""
    return SystemIds().job_id()


class SystemThreads:
    def start(self, name: str, run: Callable[[], None]) -> Callable[[float | None], None]:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread.join


def http_probe(url: str) -> Callable[[], Awaitable[bool]]:
    """Return a health check that calls *url*. Any answer but a server error means that the service is up.

    Raises `UsageError` if *url* is no URL of HTTP.
    """
    parts = parts_of(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.netloc:
        raise UsageError(
            f"probe is {scheme_of(url)!r}:…, which cannot be called; it is a URL, http://… or https://…, or an async function"
        )

    async def ask() -> bool:
        import httpx2

        # Reading this machine's certificates keeps the event loop for 50 ms; plain HTTP gets a context without any.
        verify = url.lower().startswith("https:") or SSLContext(PROTOCOL_TLS_CLIENT)
        async with httpx2.AsyncClient(timeout=5, follow_redirects=False, verify=verify) as client:
            return (await client.get(url)).status_code < 500

    return ask


def make_outbound(allowed: str) -> OutboundCalls:
    """Return the client for URLs that users enter. *allowed* names networks that it may call although they are not public."""
    from holdfast.outbound import Outbound

    return Outbound(allowed=networks(allowed))


def _no_driver(scheme: str, error: ModuleNotFoundError) -> UsageError:
    extra = {"aio_pika": "amqp"}.get(error.name or "", error.name)
    return UsageError(f"{scheme}:// needs the driver {error.name}; pip install 'holdfast[{extra}]'")


def make_transport(
    address: str, topics: Mapping[str, Any], clock: Clock, calls: Callable[[], OutboundCalls]
) -> Transport:
    """Return the transport to *address* for these *topics* (name → options). Raise `UsageError` if its driver is not installed.

    A driver is imported only when an address needs it.
    """
    scheme, _, rest = address.partition("://")
    try:
        match scheme:
            case "memory":
                from holdfast.outbox.transports.memory import MemoryTransport

                return MemoryTransport(rest)
            case "amqp" | "amqps":
                from holdfast.outbox.transports.rabbitmq import RabbitTransport

                return RabbitTransport(address, topics)
            case "redis" | "rediss":
                from holdfast.outbox.transports.redis import RedisTransport

                return RedisTransport(address, topics)
            case "nats" | "tls":
                from holdfast.outbox.transports.nats import NatsTransport

                return NatsTransport(address, topics)
    except ModuleNotFoundError as error:
        raise _no_driver(scheme, error) from None
    if scheme not in ("http", "https"):
        from holdfast.outbox.transports.plugin import PluginTransport

        return PluginTransport(address, topics)
    from holdfast.outbox.transports.webhook import WebhookTransport
    from holdfast.webhooks.signature import sign

    return WebhookTransport(address, topics, clock, calls(), sign)


def make_dispatch(address: str, name: str, clock: Clock) -> Dispatch:
    """Return the broker at *address* for the store of this *name*. Raise `UsageError` if its driver is not installed."""
    scheme = scheme_of(address)
    if parts_of(address) is None:
        raise _unreadable(scheme)
    try:
        match scheme:
            case "memory":
                from holdfast.dispatch.memory import MemoryDispatch

                return MemoryDispatch(clock)
            case "amqp" | "amqps":
                from holdfast.dispatch.rabbitmq import RabbitDispatch

                return RabbitDispatch(address, name)
            case "redis" | "rediss":
                from holdfast.dispatch.redis import RedisDispatch

                return RedisDispatch(address, name)
    except ModuleNotFoundError as error:
        raise _no_driver(scheme, error) from None
    except ValueError:
        raise _unreadable(scheme) from None
    raise UsageError(f"dispatch: {scheme!r} hands out no jobs; use redis://… or amqp://…")


def _unreadable(scheme: str) -> UsageError:
    return UsageError(
        f"dispatch: the address after {scheme}:// cannot be read; check host and port, and write %40 for an @ in a password"
    )


def thread_pool(size: int) -> Executor:
    return ThreadPoolExecutor(size, thread_name_prefix="holdfast-job")


def database_url(given: str | None) -> str:
    if given is not None:
        typed("url", given, str, f"a text, e.g. {DEFAULT_URL!r}")
        if not given.strip():
            raise UsageError(
                "url is empty; name a store (sqlite:///file.db, postgresql://… or memory://), or leave it out to use"
                f" HOLDFAST_DATABASE_URL or {DEFAULT_URL}"
            )
    url = given or os.environ.get("HOLDFAST_DATABASE_URL") or DEFAULT_URL
    if not url.startswith(_STORES):
        raise not_a_store(url)
    return url


_STORES = ("memory:", "sqlite:", "postgresql:", "postgres:")


def not_a_store(url: str) -> UsageError:
    """Return the error for a *url* that names no store. It shows only the scheme, because the rest may hold a password."""
    word = scheme_of(url) or ("it" if "@" in url else url[:20])
    return UsageError(f"{word!r} is not a store; use sqlite:///file.db, postgresql://… or memory://")


#: How many files are written, read or deleted at once.
_HANDS = 8


def make_artifacts(place: str) -> ArtifactBackend:
    """Return the place for artifacts: a folder (a path or file:///…), s3://bucket/prefix, or memory:// for tests."""
    scheme, separator, rest = place.partition("://")
    match scheme if separator else "path":
        case "memory":
            from holdfast.artifacts.memory import MemoryArtifacts

            return MemoryArtifacts()
        case "s3":
            bucket, _, prefix = rest.partition("/")
            if not bucket or "@" in rest:
                raise UsageError(
                    "s3:// needs a bucket, e.g. artifacts='s3://my-bucket/results'; keys are set as for any AWS client"
                )
            try:
                from holdfast.artifacts.s3 import S3Artifacts
            except ModuleNotFoundError as error:
                raise UsageError(f"S3 needs the driver {error.name}; pip install 'holdfast[s3]'") from None
            return S3Artifacts(bucket, prefix.strip("/"))
    from holdfast.artifacts.files import FileArtifacts

    folder = unquote(rest) if separator else place
    if separator and not folder.startswith("/"):
        named = "this" if "@" in folder else f"file://{folder[:80]}"
        raise UsageError(f"{named} is not a folder; write file:///path, or the path alone")
    return FileArtifacts(Path(folder), thread_pool(_HANDS))


def make_store(url: str, clock: Clock, threads: Threads | None) -> Store:
    """Return the store that *url* names, which is not open yet. Raise `UsageError` if its driver is not installed."""
    scheme = url.partition("://")[0]
    match scheme:
        case "memory":
            from holdfast.stores.memory import MemoryStore

            return MemoryStore(clock)
        case "sqlite":
            from holdfast.stores.sqlite import SqliteStore

            return SqliteStore(_file_of(url), clock, threads)
        case "postgresql" | "postgres":
            try:
                from holdfast.stores.postgres import PostgresStore
            except ModuleNotFoundError as error:
                raise UsageError(
                    f"PostgreSQL needs the driver {error.name}; pip install 'holdfast[postgres]'"
                ) from None
            return PostgresStore(url, clock, threads)
    raise not_a_store(url)


def _file_of(url: str) -> str:
    """Return the path in a sqlite:// URL."""
    name, _, options = url.partition("://")[2].partition("?")
    path = unquote(name.removeprefix("/"))
    if not path or path == ":memory:":
        raise UsageError("sqlite:// needs a file, e.g. sqlite:///holdfast.db; for tests use memory://")
    if options:
        named = "what follows" if "@" in url else options[:40]
        raise UsageError(f"sqlite:// has no options; drop ?{named} from the URL")
    return path


def find_secret_keys(url: str, settings: Settings, ids: Ids) -> Callable[[], tuple[bytes, ...]]:
    """Return a function that reads the keys which secrets are made from. Few apps need them."""
    if settings.secret is not None:
        return cache(partial(app_secret.keys_of, settings.secret))
    if url.startswith("memory:"):
        return cache(partial(app_secret.temporary_key, ids.secret))
    if url.startswith("sqlite:"):
        return cache(partial(app_secret.key_beside, Path(_file_of(url)), ids.secret))
    return app_secret.no_key


def make_external_task_store(transaction: Transaction) -> ExternalTaskStore:
    """Return the external tasks of the store that *transaction* belongs to."""
    in_memory = getattr(transaction, "database", None)
    if in_memory is not None:  # its SQL knows no jobs
        from holdfast.stores.memory.external_tasks import MemoryExternalTasks

        return MemoryExternalTasks(in_memory)
    match transaction.dialect:
        case "postgres":
            from holdfast.stores.postgres.external_tasks import PostgresExternalTasks

            return PostgresExternalTasks(transaction)
    from holdfast.stores.sqlite.external_tasks import SqliteExternalTasks

    return SqliteExternalTasks(transaction)
