"""Enqueue and publish inside the caller's own transaction: asyncpg, psycopg (sync, async), SQLAlchemy (sync, async), Django.

All run the same coroutine; only the way to run a statement differs. The caller's commit must be durable (rule 8 of docs/explanation/reliability.md).
What can be refused is refused before the first write, because a failed statement would undo the caller's transaction.
Hooks run in the caller's transaction too, on the caller's connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast
from urllib.parse import unquote, urlsplit

from holdfast.engine.ports import Hook, MoveNotice, Row, Transaction
from holdfast.errors import HoldfastError, SchemaMismatch, StoreError, StoreUnavailable, UsageError
from holdfast.jobs.job import Enqueued, JobBatch, JobId, Lane, NewJob
from holdfast.jobs.moves import Kind
from holdfast.stores.foreign_connections import is_of, refuse_lender
from holdfast.stores.hooks import run_to_end
from holdfast.stores.migrations import refuse_family
from holdfast.stores.postgres import enqueue_plan
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.migrate import INSTEAD
from holdfast.stores.postgres.transaction import PostgresTransaction

Rows = Sequence[Row]
_CHECK = """SELECT current_setting('synchronous_commit'), current_database()::text, to_regclass($1::text) IS NOT NULL,
                   EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('holdfast.migration') AND attname = 'family')"""
_COMPONENTS = "SELECT DISTINCT component FROM holdfast.migration"
#: The lanes that the caller's transaction can see, by their place; and whether events could be numbered too low.
_LANES = """SELECT u.place, l.id, holdfast.event_numbers_lag()
              FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::boolean[])
                   WITH ORDINALITY AS u(queue, task, dependency, shard, fair, place)
              LEFT JOIN holdfast.lane l USING (queue, task, dependency, shard, fair)"""


#: Runs one statement on the caller's connection and returns its rows.
Run = Callable[[str, tuple[Any, ...]], Awaitable[Rows]]
#: Makes lanes beside the caller's transaction and returns the numbers of those that it could make.
Register = Callable[[Collection[Lane]], Awaitable[Mapping[Lane, int]]]


class Terms(NamedTuple):
    """What holds for every caller: the connection must be to the database of *url*, and the *hooks* are called.

    *load*, if given, is called first with the components of the database. It may add hooks.
    """

    url: str
    hooks: Sequence[tuple[frozenset[Kind], Hook]] = ()
    load: Callable[[Collection[str]], None] | None = None


class Words(NamedTuple):
    """The words for what the caller wants done, in the errors."""

    thing: str
    verb: str
    past: str
    call: str


JOB = Words("job", "enqueue", "enqueued", "task.options(connection=…).enqueue(…)")
MESSAGE = Words("message", "publish", "published", "app.outbox.publish(…, connection=…)")


# -- enqueue ------------------------------------------------------------------------------------------------------------
async def enqueue_on(
    connection: Any, jobs: Sequence[NewJob], terms: Terms, register: Register
) -> list[Enqueued]:
    """Enqueue on an async connection, or on a sync one."""
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
        known = await register({job.spec.lane for job in jobs})  # a sync connection cannot wait for it
        return enqueue_on_sync(connection, jobs, terms, lambda lanes: known)
    return await _enqueue(run, jobs, terms, register)


def enqueue_on_sync(
    connection: Any,
    jobs: Sequence[NewJob],
    terms: Terms,
    register: Callable[[Collection[Lane]], Mapping[Lane, int]],
) -> list[Enqueued]:
    """Enqueue on a sync connection: psycopg's, SQLAlchemy's or Django's."""

    async def registered(lanes: Collection[Lane]) -> Mapping[Lane, int]:
        return register(lanes)

    if not jobs:
        return []
    return run_to_end(_enqueue(_sync_runner(connection, JOB), jobs, terms, registered, adapt=_to_end))


async def _enqueue(
    run: Run,
    jobs: Sequence[NewJob],
    terms: Terms,
    register: Register,
    *,
    adapt: Callable[[Hook], Hook] = lambda hook: hook,
) -> list[Enqueued]:
    """Enqueue on the connection of *run*. *adapt* returns each hook in the form that this connection needs."""
    with _translated(JOB):
        _check(await run(_CHECK, ("holdfast.ready",)), terms.url, JOB)
        if terms.load is not None:
            terms.load([component for (component,) in await run(_COMPONENTS, ())])
        lanes = await _lanes(run, sorted({batch.spec.lane for batch in JobBatch.split(jobs)}), register)
        if not terms.hooks:
            answers, _ = await _run_plan(run, jobs, lanes)
            return answers
        # A hook may refuse after the first write: a caller who then goes on and commits has no job.
        await run("SAVEPOINT holdfast_hooks", ())
        answers, moves = await _run_plan(run, jobs, lanes)
        try:
            hooks = [(kinds, adapt(hook)) for kinds, hook in terms.hooks]
            await _call_hooks(hooks, PostgresTransaction(lambda sql, *given: run(sql, given)), moves)
        except asyncio.CancelledError:
            raise
        except BaseException:
            await run("ROLLBACK TO SAVEPOINT holdfast_hooks", ())
            raise
        await run("RELEASE SAVEPOINT holdfast_hooks", ())
        return answers


async def _lanes(run: Run, lanes: list[Lane], register: Register) -> dict[Lane, int]:
    """Return the numbers of *lanes*, of which some may have to be made."""
    rows = await run(_LANES, tuple(map(list, zip(*lanes, strict=True))))
    if any(lag for _, _, lag in rows):
        raise SchemaMismatch(
            "the database was restored from a dump, its event numbers must be raised first; run `holdfast migrate`"
        )
    known = {lanes[place - 1]: number for place, number, _ in rows if number is not None}
    missing = [lane for lane in lanes if lane not in known]
    return {**known, **await register(missing)} if missing else known


async def _run_plan(
    run: Run, jobs: Sequence[NewJob], lanes: Mapping[Lane, int]
) -> tuple[list[Enqueued], list[MoveNotice]]:
    plan, moves = enqueue_plan.enqueue(jobs, lanes=lanes, grant=False), list[MoveNotice]()
    try:
        sql, parameters = next(plan)
        while True:
            rows = await run(sql, parameters)
            if sql is SQL["enqueue_again"]:
                moves += [MoveNotice(Kind.queued, JobId(str(row[0])), 0, 0, {}) for row in rows]
            sql, parameters = plan.send(rows)
    except StopIteration as done:
        return done.value, moves


async def _call_hooks(
    hooks: Sequence[tuple[frozenset[Kind], Hook]], transaction: Transaction, moves: Sequence[MoveNotice]
) -> None:
    for kinds, hook in hooks:
        observed = [moved for moved in moves if moved.kind in kinds]
        if observed:
            await hook(transaction, observed)


def _to_end(hook: Hook) -> Hook:
    """Return the hook for a sync connection, where it may await its transaction alone."""

    async def call(transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        run_to_end(hook(transaction, moves))

    return call


# -- publish ------------------------------------------------------------------------------------------------------------
async def publish_on(connection: Any, parameters: tuple[Any, ...], url: str) -> None:
    """Publish on an async connection, or on a sync one."""
    run_sync = getattr(connection, "run_sync", None)
    if is_of(connection, "sqlalchemy") and run_sync is not None:
        await run_sync(lambda sync: publish_on_sync(sync, parameters, url))
    elif (run := _async_runner(connection)) is not None:
        await _publish(run, parameters, url)
    else:
        publish_on_sync(connection, parameters, url)


def publish_on_sync(connection: Any, parameters: tuple[Any, ...], url: str) -> None:
    """Publish on a sync connection."""
    run_to_end(_publish(_sync_runner(connection, MESSAGE), parameters, url))


async def _publish(run: Run, parameters: tuple[Any, ...], url: str) -> None:
    with _translated(MESSAGE):
        _check(await run(_CHECK, ("holdfast.outbox",)), url, MESSAGE)
        await run(SQL["publish"], parameters)


# -- connections --------------------------------------------------------------------------------------------------------
def _named_rows(cursor: Any) -> Callable[[Sequence[Any]], _NamedRow]:
    """Return what makes rows of psycopg that can be read by name too, as asyncpg's can."""
    places = {column.name: place for place, column in enumerate(cursor.description or ())}
    return lambda values: _NamedRow(values, places)


class _NamedRow:
    __slots__ = ("_places", "_values")

    def __init__(self, values: Sequence[Any], places: Mapping[str, int]) -> None:
        self._values, self._places = tuple(values), places

    def __getitem__(self, column: Any) -> Any:
        return self._values[self._places[column] if isinstance(column, str) else column]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _check(rows: Rows, url: str, words: Words) -> None:
    [(commit, database, has_schema, has_family)] = rows
    parts = urlsplit(url)
    expected = unquote(parts.path.removeprefix("/"))
    # Behind a pooler (`?prepare=off`) the name in the URL may be the pooler's own.
    if expected and database != expected and "prepare=off" not in parts.query:
        raise UsageError(
            f"the connection is to the database {database}, the {words.thing}s are in {expected}; pass one to that"
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
def _translated(words: Words) -> Iterator[None]:
    """Raise an error of the driver as one of ours, in one line that says what became of the caller's transaction."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        if not (is_of(error, "asyncpg") or is_of(error, "psycopg")):
            raise
        raise _translation(error, words) from error


def _translation(error: Exception, words: Words) -> StoreError:
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


def _async_runner(connection: Any) -> Run | None:
    """Return what runs statements on an async connection; None if it is not async."""
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
            cursor = psycopg.AsyncRawCursor(connection, row_factory=_named_rows)
            await cursor.execute(sql.encode(), parameters)
            return await cursor.fetchall() if cursor.description else []

        return execute
    return None


def _is_async(connection: Any) -> bool:
    import psycopg

    return isinstance(connection, psycopg.AsyncConnection)


def _in_transaction(connection: Any) -> None:
    """Raise `UsageError` if a psycopg connection is in no transaction and would not begin one by itself."""
    from psycopg.pq import TransactionStatus

    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise UsageError(
            "no transaction is open on this connection; use `with connection.transaction():`, or leave out connection="
        )


def _sync_runner(connection: Any, words: Words) -> Run:
    """Return what runs statements on a sync connection: it never waits, so `run_to_end` can run what awaits it."""
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

    async def execute(sql: str, parameters: tuple[Any, ...]) -> Rows:
        cursor = psycopg.RawCursor(connection, row_factory=_named_rows)
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


def _through_greenlet(driver: Any) -> Run:
    """Return what runs statements on SQLAlchemy's async driver in its greenlet, where sync code awaits them."""
    from sqlalchemy.util import await_only

    run = _async_runner(driver)
    assert run is not None

    async def execute(sql: str, parameters: tuple[Any, ...]) -> Rows:
        return cast(Rows, await_only(run(sql, parameters)))

    return execute
