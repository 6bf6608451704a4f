"""Enqueue and publish inside the caller's own transaction: asyncpg, psycopg (sync, async), SQLAlchemy (sync, async), Django.

The plan of statements is the same; only the way to run one differs. The caller's commit must be durable (rule 8 of docs/explanation/reliability.md).
What can be refused is refused before the first write, because a failed statement would undo the caller's transaction.
Hooks run in the caller's transaction too, on the caller's connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from holdfast.domain.job import Enqueued, JobBatch, JobId, Lane, NewJob
from holdfast.domain.moves import Kind
from holdfast.engine.ports import Hook, MoveNotice
from holdfast.errors import HoldfastError, SchemaMismatch, StoreError, StoreUnavailable, UsageError
from holdfast.stores.foreign_connections import is_of, refuse_lender
from holdfast.stores.hooks import run_to_end
from holdfast.stores.migrations import refuse_family
from holdfast.stores.postgres import enqueue_plan
from holdfast.stores.postgres.enqueue_plan import SQL, Row
from holdfast.stores.postgres.migrate import INSTEAD
from holdfast.stores.postgres.move import ask_the_time

T = TypeVar("T")
Rows = Sequence[Row]
_CHECK = """SELECT current_setting('synchronous_commit'), current_database()::text, to_regclass($1::text) IS NOT NULL,
                   EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('holdfast.migration') AND attname = 'family')"""
#: The lanes that the caller's transaction can see, by their place; and whether events could be numbered too low.
_LANES = """SELECT u.place, l.id, holdfast.event_numbers_lag()
              FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::boolean[])
                   WITH ORDINALITY AS u(queue, task, dependency, shard, fair, place)
              LEFT JOIN holdfast.lane l USING (queue, task, dependency, shard, fair)"""


_UNDO = "ROLLBACK TO SAVEPOINT holdfast_hooks"


class Statement(NamedTuple):
    """To be run on the caller's connection; answered with its rows."""

    sql: str
    parameters: tuple[Any, ...]


class NewLanes(NamedTuple):
    """To be registered beside the caller's transaction; answered with the numbers of those that could be."""

    lanes: Collection[Lane]


class HookCall(NamedTuple):
    """To be told to the hooks."""

    moves: Sequence[MoveNotice]


class Terms(NamedTuple):
    """What the store asks of every caller: *url* says where the connection should lead."""

    url: str
    hooks: Sequence[tuple[frozenset[Kind], Hook]] = ()

    def wanted(self, moves: Sequence[MoveNotice]) -> Iterator[tuple[Hook, list[MoveNotice]]]:
        for kinds, hook in self.hooks:
            found = [moved for moved in moves if moved.kind in kinds]
            if found:
                yield hook, found


class Words(NamedTuple):
    """What the caller wants done, as errors tell it."""

    thing: str
    verb: str
    past: str
    call: str


JOB = Words("job", "enqueue", "enqueued", "task.options(connection=…).enqueue(…)")
MESSAGE = Words("message", "publish", "published", "app.publish(…, connection=…)")

Steps = Generator[Statement | NewLanes | HookCall, Any, T]


def _publish_steps(parameters: tuple[Any, ...], url: str) -> Steps[None]:
    _check((yield Statement(_CHECK, ("holdfast.outbox",))), url, MESSAGE)
    yield Statement(SQL["publish"], parameters)


def _steps(jobs: Sequence[NewJob], terms: Terms) -> Steps[list[Enqueued]]:
    """Return all steps, in order, for the sync and the async caller alike."""
    url = terms.url
    _check((yield Statement(_CHECK, ("holdfast.ready",))), url, JOB)
    wanted = sorted({batch.spec.lane for batch in JobBatch.split(jobs)})
    rows = yield Statement(_LANES, tuple(map(list, zip(*wanted, strict=True))))
    if any(lag for _, _, lag in rows):
        raise SchemaMismatch(
            "the database was restored from a dump, its event numbers must be raised first; run `holdfast migrate`"
        )
    lanes = {wanted[place - 1]: number for place, number, _ in rows if number is not None}
    if len(lanes) < len(wanted):
        lanes |= yield NewLanes([lane for lane in wanted if lane not in lanes])
    if terms.hooks:  # one may refuse after the first write: a caller who then goes on and commits has no job
        yield Statement("SAVEPOINT holdfast_hooks", ())
    plan = enqueue_plan.enqueue(jobs, lanes=lanes, grant=False)
    moves: list[MoveNotice] = []
    try:
        sql, parameters = next(plan)
        while True:
            rows = yield Statement(sql, parameters)
            if sql is SQL["enqueue_again"]:
                moves += [MoveNotice(Kind.queued, JobId(str(row[0])), 0, 0, {}) for row in rows]
            sql, parameters = plan.send(rows)
    except StopIteration as done:
        if terms.hooks:
            yield HookCall(moves)
            yield Statement("RELEASE SAVEPOINT holdfast_hooks", ())
        answers: list[Enqueued] = done.value
        return answers


def enqueue_on_sync(
    connection: Any,
    jobs: Sequence[NewJob],
    terms: Terms,
    register: Callable[[Collection[Lane]], Mapping[Lane, int]],
) -> list[Enqueued]:
    """On a sync connection: psycopg's, SQLAlchemy's or Django's."""
    return _drive_sync(connection, _steps(jobs, terms), JOB, terms, register) if jobs else []


def publish_on_sync(connection: Any, parameters: tuple[Any, ...], url: str) -> None:
    _drive_sync(connection, _publish_steps(parameters, url), MESSAGE, Terms(url), lambda lanes: {})


async def publish_on(connection: Any, parameters: tuple[Any, ...], url: str) -> None:
    run_sync = getattr(connection, "run_sync", None)
    if is_of(connection, "sqlalchemy") and run_sync is not None:
        await run_sync(lambda sync: publish_on_sync(sync, parameters, url))
    elif (run := _async_runner(connection)) is not None:
        await _drive(run, _publish_steps(parameters, url), MESSAGE, Terms(url), _no_lanes)
    else:
        publish_on_sync(connection, parameters, url)


async def _no_lanes(lanes: Collection[Lane]) -> Mapping[Lane, int]:
    return {}


def _drive_sync(
    connection: Any,
    steps: Steps[T],
    words: Words,
    terms: Terms,
    register: Callable[[Collection[Lane]], Mapping[Lane, int]],
) -> T:
    with _told(words):
        run = _sync_runner(connection, words)
        answer: Any = None
        try:
            while True:
                match steps.send(answer):
                    case Statement(sql, parameters):
                        answer = run(sql, parameters)
                    case NewLanes(lanes):
                        answer = register(lanes)
                    case HookCall(moves):
                        try:
                            for hook, wanted in terms.wanted(moves):
                                run_to_end(hook(_SyncTransaction(run), wanted))
                        except BaseException:
                            run(_UNDO, ())
                            raise
        except StopIteration as done:
            end: T = done.value
            return end


async def enqueue_on(
    connection: Any,
    jobs: Sequence[NewJob],
    terms: Terms,
    register: Callable[[Collection[Lane]], Awaitable[Mapping[Lane, int]]],
) -> list[Enqueued]:
    """On an async connection; a sync one is served too."""
    run_sync = getattr(connection, "run_sync", None)
    if is_of(connection, "sqlalchemy") and run_sync is not None:
        from sqlalchemy.util import await_only

        answers: list[Enqueued] = await run_sync(
            lambda sync: enqueue_on_sync(sync, jobs, terms, lambda lanes: await_only(register(lanes)))
        )
        return answers
    if not jobs:
        return []
    run = _async_runner(connection)
    if run is None:
        known = await register({job.spec.lane for job in jobs})  # there is no waiting on a sync connection
        return enqueue_on_sync(connection, jobs, terms, lambda lanes: known)
    return await _drive(run, _steps(jobs, terms), JOB, terms, register)


async def _drive(
    run: Callable[[str, tuple[Any, ...]], Awaitable[Rows]],
    steps: Steps[T],
    words: Words,
    terms: Terms,
    register: Callable[[Collection[Lane]], Awaitable[Mapping[Lane, int]]],
) -> T:
    with _told(words):
        answer: Any = None
        try:
            while True:
                match steps.send(answer):
                    case Statement(sql, parameters):
                        answer = await run(sql, parameters)
                    case NewLanes(lanes):
                        answer = await register(lanes)
                    case HookCall(moves):
                        try:
                            for hook, wanted in terms.wanted(moves):
                                await hook(_AsyncTransaction(run), wanted)
                        except Exception:
                            await run(_UNDO, ())
                            raise
        except StopIteration as done:
            end: T = done.value
            return end


class _SyncTransaction:
    """The caller's transaction, as a hook sees it."""

    dialect = "postgres"

    def __init__(self, run: Callable[[str, tuple[Any, ...]], Rows]) -> None:
        self._run = run

    async def execute(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._run(sql, params)]

    async def now(self) -> datetime:
        return await ask_the_time(self)


class _AsyncTransaction:
    dialect = "postgres"

    def __init__(self, run: Callable[[str, tuple[Any, ...]], Awaitable[Rows]]) -> None:
        self._run = run

    async def execute(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self._run(sql, params)]

    async def now(self) -> datetime:
        return await ask_the_time(self)


def _check(rows: Rows, url: str, words: Words) -> None:
    [(commit, database, has_schema, has_family)] = rows
    parts = urlsplit(url)
    wanted = unquote(parts.path.removeprefix("/"))
    # Behind a pooler (`?prepare=off`) the name in the URL may be the pooler's own.
    if wanted and database != wanted and "prepare=off" not in parts.query:
        raise UsageError(
            f"the connection is to the database {database}, the {words.thing}s are in {wanted}; pass one to that"
        )
    if not has_schema:
        raise SchemaMismatch(f"the database {database} has no Holdfast schema; run `holdfast migrate`")
    if not has_family:
        refuse_family(1, f"the database {database}", INSTEAD)
    if commit == "off":
        raise UsageError(
            "this connection commits without waiting for the disk (synchronous_commit=off), so a crash could lose the"
            f" {words.thing}; run SET LOCAL synchronous_commit = on in the transaction"
        )


@contextmanager
def _told(words: Words) -> Iterator[None]:
    """The driver's error as one of ours, in one line that says what became of the caller's transaction."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        if not (is_of(error, "asyncpg") or is_of(error, "psycopg")):
            raise
        raise _translated(error, words) from error


def _translated(error: Exception, words: Words) -> StoreError:
    code: str = getattr(error, "sqlstate", None) or ""
    what = str(error).partition("\n")[0] or type(error).__name__
    thing, past = words.thing, words.past
    undone = "your transaction is undone; roll it back"
    match code[:2]:
        case "25":  # in a failed transaction, or a read-only one: not our doing
            return StoreError(f"the {thing} cannot be {past} in this transaction: {what}")
        case "40" | "55" | "57":  # deadlock, serialization, a lock that took too long, a server that stops
            return StoreUnavailable(f"the {thing} was not {past}: {what}; {undone} and run it again")
        case "08" | "":  # the connection is gone, or was used wrongly
            return StoreUnavailable(f"the {thing} was not {past}, the connection failed: {what}")
    return StoreError(f"PostgreSQL refused the {thing}: {what}; {undone}")


def _async_runner(connection: Any) -> Callable[[str, tuple[Any, ...]], Awaitable[Rows]] | None:
    refuse_lender(connection)
    if is_of(connection, "asyncpg"):
        if not connection.is_in_transaction():
            raise UsageError(
                "no transaction is open on this connection; use `async with connection.transaction():`"
            )

        async def fetch(sql: str, parameters: tuple[Any, ...]) -> Rows:
            rows: Rows = await connection.fetch(sql, *parameters)
            return rows

        return fetch
    if is_of(connection, "psycopg") and _is_async(connection):
        import psycopg

        _in_transaction(connection)

        async def execute(sql: str, parameters: tuple[Any, ...]) -> Rows:
            cursor = psycopg.AsyncRawCursor(connection, row_factory=psycopg.rows.tuple_row)
            await cursor.execute(sql.encode(), parameters)
            return await cursor.fetchall() if cursor.description else []

        return execute
    return None


def _is_async(connection: Any) -> bool:
    import psycopg

    return isinstance(connection, psycopg.AsyncConnection)


def _in_transaction(connection: Any) -> None:
    """A psycopg connection begins by itself, unless it is in autocommit: then there is nothing to be part of."""
    from psycopg.pq import TransactionStatus

    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise UsageError(
            "no transaction is open on this connection; use `with connection.transaction():`, or leave out connection="
        )


def _sync_runner(connection: Any, words: Words) -> Callable[[str, tuple[Any, ...]], Rows]:
    refuse_lender(connection)
    given = connection
    if is_of(connection, "sqlalchemy"):
        alchemy = connection.connection() if hasattr(connection, "get_bind") else connection
        if alchemy.dialect.name != "postgresql":
            raise _wrong_kind(given, words)
        alchemy.exec_driver_sql("SELECT 1")  # begins the transaction that SQLAlchemy believes it is in
        connection = alchemy.connection.driver_connection
        if is_of(connection, "asyncpg") or (is_of(connection, "psycopg") and _is_async(connection)):
            return _through_greenlet(connection)
    elif hasattr(connection, "ensure_connection"):  # Django
        if getattr(connection, "vendor", "") != "postgresql":
            raise _wrong_kind(given, words)
        connection.ensure_connection()
        if connection.get_autocommit():
            raise UsageError("no transaction is open on this connection; use `with transaction.atomic():`")
        connection = connection.connection
    if not is_of(connection, "psycopg") or _is_async(connection):
        raise _wrong_kind(given, words)
    import psycopg

    _in_transaction(connection)

    def execute(sql: str, parameters: tuple[Any, ...]) -> Rows:
        cursor = psycopg.RawCursor(connection, row_factory=psycopg.rows.tuple_row)
        cursor.execute(sql.encode(), parameters)
        return cursor.fetchall() if cursor.description else []

    return execute


def _wrong_kind(connection: Any, words: Words) -> UsageError:
    kind = f"{type(connection).__module__}.{type(connection).__name__}"
    if is_of(connection, "asyncpg") or (is_of(connection, "psycopg") and _is_async(connection)):
        return UsageError(f"a {kind} is async: use `await {words.call}`")
    return UsageError(
        f"cannot {words.verb} on a {kind}: the database is PostgreSQL, so pass a connection of psycopg 3, asyncpg,"
        " SQLAlchemy over one of them, or Django"
    )


def _through_greenlet(driver: Any) -> Callable[[str, tuple[Any, ...]], Rows]:
    """Inside SQLAlchemy's greenlet: its async driver is awaited from sync code."""
    from sqlalchemy.util import await_only

    run = _async_runner(driver)
    assert run is not None
    return lambda sql, parameters: await_only(run(sql, parameters))
