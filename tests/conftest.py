"""Fixtures for private servers. A test that uses one gets the marker `service`.

| fixture            | scope    | gives                                                                    |
|--------------------|----------|--------------------------------------------------------------------------|
| `postgres`         | session  | a running `Postgres`, the system's version; one for each process          |
| `postgres_url`     | function | the URL of a new database on it, with our schema                         |
| `empty_postgres`   | function | the same without our schema; there is an `empty_postgres18`, too          |
| `sqlite_url`       | function | the URL of a new SQLite file, with our schema                             |
| `database_url`     | function | of both, one after the other                                              |
| `store_url`        | function | of those and `memory://`                                                  |
| `postgres_proxy`   | function | a `Proxy` before it: `postgres_proxy.route(postgres_url)`                 |
| `postgres18`       | session  | the same as `postgres`, version 18                                        |
| `durable_postgres` | function | a server for one test, with fsync on, to be killed and started again       |
| `pgbouncer`        | session  | a running `PgBouncer` in transaction mode before `postgres`               |
| `pgbouncer_url`    | function | the URL of `postgres_url`'s database through it, with `?prepare=off`      |
| `rabbitmq`         | session  | a running `RabbitMq`                                                      |
| `rabbitmq_url`     | session  | its amqp:// address; queues of each test have names of their own          |
| `own_rabbitmq`     | module   | the same, for tests that kill it; it runs again afterwards                |
| `redis_server`     | session  | a running `RedisServer`                                                   |
| `nats_server`      | session  | a running `NatsServer`                                                    |
"""

import itertools
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import hypothesis
import pytest

from devservices import keeper
from devservices.nats import NatsServer
from devservices.pgbouncer import PgBouncer
from devservices.postgres import Postgres
from devservices.proxy import Proxy
from devservices.rabbitmq import RabbitMq
from devservices.redis import RedisServer
from devservices.server import NotInstalled, memory_folder
from holdfast import UsageError
from tests.databases import new_database, new_file

SERVICES = {
    "postgres",
    "postgres18",
    "durable_postgres",
    "pgbouncer",
    "rabbitmq",
    "own_rabbitmq",
    "redis_server",
    "nats_server",
}
#: The tests of a module share servers, their data or computed values: they run in one process, in their order.
TOGETHER = (
    "tests/client/",
    "tests/server/",
    "tests/systems/",
    "tests/simulate/",
    "tests/project/test_seams.py",
)
#: RabbitMQ takes longer to start than these tests take: one process starts it and runs all of them.
AT_THE_BROKER = (
    "tests/dispatch/",
    "tests/outbox/transports/",
    "tests/e2e/faults/test_relay.py",
    "tests/torture/test_torture.py::test_a_short_torture_with_brokers",
    "tests/systems/grading/test_celery_plugin.py",
    "tests/systems/grading/test_failure_modes.py",
)
#: One Chromium takes both cores: two at a time leave nothing for other tests.
AT_THE_BROWSER = (
    "tests/dashboard/",
    "tests/systems/screenshots/",
    "tests/systems/converter/test_page.py",
    "tests/systems/reports/test_page.py",
    "tests/systems/grading/test_page.py",
)
DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.service)]
_numbers = itertools.count(1)
T = TypeVar("T")

#: Fewer than the usual hundred examples, to save time. `--hypothesis-profile=default` tries more, and different ones.
hypothesis.settings.register_profile("suite", hypothesis.settings.get_profile("ci"), max_examples=40)
#: For `make quick`, which has to take seconds.
hypothesis.settings.register_profile("quick", hypothesis.settings.get_profile("ci"), max_examples=5)


def group_of(test_id: str) -> str | None:
    """Return the group whose tests run in one process; `None` for a test that may run in any."""
    if test_id.startswith(AT_THE_BROKER):
        return "broker"
    if test_id.startswith(AT_THE_BROWSER):
        return "browser"
    return test_id.partition("::")[0] if test_id.startswith(TOGETHER) else None


def pytest_configure() -> None:
    # A background run ignores SIGINT, and every process that the tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The servers have no TLS, and asking for it costs each connection a millisecond.
    os.environ.setdefault("PGSSLMODE", "disable")
    # Webhooks on PostgreSQL need one.
    os.environ.setdefault("HOLDFAST_SECRET", "the key of the apps of the tests")
    memory = memory_folder()
    if memory is not None:  # for the folders of the tests, with thousands of small files
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


def pytest_itemcollected(item: pytest.Item) -> None:
    if SERVICES.intersection(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.service)
    if group := group_of(item.nodeid):
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_unconfigure() -> None:
    keeper.close()


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """Undo the set-up of logs by a command that a test calls in this process."""
    yield
    ours = logging.getLogger("holdfast")
    ours.handlers.clear()
    ours.propagate = True
    ours.setLevel(logging.NOTSET)
    if (structlog := sys.modules.get("structlog")) is not None:
        structlog.reset_defaults()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with server() as running:
        yield running


@pytest.fixture(scope="session")
def postgres18() -> Iterator[Postgres]:
    with server(18) as running:
        yield running


@pytest.fixture
def durable_postgres() -> Iterator[Postgres]:
    with server(durable=True) as running:
        yield running


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    with new_database(postgres) as url:
        yield url


@pytest.fixture
def empty_postgres(postgres: Postgres) -> Iterator[str]:
    yield from _empty(postgres)


@pytest.fixture
def empty_postgres18(postgres18: Postgres) -> Iterator[str]:
    yield from _empty(postgres18)


def _empty(running: Postgres) -> Iterator[str]:
    name = f"empty_{next(_numbers)}"
    yield running.create_database(name)
    running.drop_database(name)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return new_file(tmp_path / "jobs.db")


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture(params=["memory", *DATABASES])
def store_url(request: pytest.FixtureRequest) -> str:
    return "memory://" if request.param == "memory" else str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def postgres_proxy(postgres: Postgres) -> Iterator[Proxy]:
    with Proxy(postgres.host, postgres.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def pgbouncer(postgres: Postgres) -> Iterator[PgBouncer]:
    with installed(lambda: PgBouncer(postgres)) as running:
        yield running


@pytest.fixture
def pgbouncer_url(pgbouncer: PgBouncer, postgres_url: str) -> str:
    return f"{pgbouncer.route(postgres_url)}?prepare=off"


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMq]:
    with installed(RabbitMq) as running:
        _brokers.append(running)
        yield running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Kill RabbitMQ after its last test: idle, it would take a thirtieth of a core."""
    yield
    if nextitem is None or group_of(nextitem.nodeid) != "broker":
        while _brokers:
            _brokers.pop().kill()


_brokers: list[RabbitMq] = []


@pytest.fixture(scope="session")
def rabbitmq_url(rabbitmq: RabbitMq) -> str:
    return rabbitmq.url()


@pytest.fixture(scope="module")
def own_rabbitmq(rabbitmq: RabbitMq) -> Iterator[RabbitMq]:
    """The same broker, for tests that kill it. It is started again at the end."""
    yield rabbitmq
    rabbitmq.start()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    with installed(RedisServer) as running:
        yield running


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    with installed(NatsServer) as running:
        yield running


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of Chromium. Where it is not installed the test is skipped; in CI it fails."""
    from systems.screenshots.browser.chromium import find_program

    def find() -> str:
        try:
            return find_program(os.environ)
        except UsageError as missing:
            raise NotInstalled(str(missing)) from None

    return installed(find)


def server(major: int | None = None, *, durable: bool = False) -> Postgres:
    """Return a server that is not started. Where it is not installed the test is skipped; in CI it fails."""
    return installed(lambda: Postgres(major, durable=durable))


def needs_program(name: str) -> str:
    """Return the path of a program. Where it is not installed the test is skipped; in CI it fails."""

    def find() -> str:
        found = shutil.which(name)
        if found is None:
            raise NotInstalled(f"no {name} on this machine: run `tools/system`")
        return found

    return installed(find)


def installed(make: Callable[[], T]) -> T:
    """Return what *make* returns. If it raises `NotInstalled` the test is skipped; in CI it fails."""
    try:
        return make()
    except NotInstalled as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI=true: {missing}")
        pytest.skip(str(missing))
