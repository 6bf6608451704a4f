"""Turn errors of PostgreSQL and its driver into ours."""

from __future__ import annotations

import socket
import ssl
from urllib.parse import SplitResult

import asyncpg

from holdfast.errors import SchemaMismatch, StoreError, StoreUnavailable, UsageError
from holdfast.values.urls import parts_of

_AWAY = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    # The connection was used after the server had ended it and before its socket was seen to be closed.
    asyncpg.InternalClientError,
)
#: After these errors the connection is lost, and the other connections are too.
LOST = (*_AWAY, TimeoutError)
#: The server undid the transaction or ended the connection for reasons of its own: the same may succeed at once.
PASSING = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InternalClientError,
)
#: All errors that the driver raises.
DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)


def translate(error: BaseException, url: str) -> StoreError:
    """Return *error* as one of ours. Its text says in one line what happened and what to do, and never has the password."""
    where = shown(url)
    match error:
        case StoreError():
            return error
        case _ if _is_of_a_pooler(error):
            return behind_a_pooler(url)
        case asyncpg.InvalidCatalogNameError():
            return StoreError(f"there is no database at {where}; create it, then run `holdfast migrate`")
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            return StoreError(
                f"PostgreSQL refused the user or password for {where}; check HOLDFAST_DATABASE_URL"
            )
        case (
            asyncpg.UndefinedTableError()
            | asyncpg.InvalidSchemaNameError()
            | asyncpg.UndefinedFunctionError()
        ):
            return SchemaMismatch(f"{where} has no Holdfast schema (or an older one); run `holdfast migrate`")
        case asyncpg.ReadOnlySQLTransactionError():
            return StoreError(f"{where} is read-only; connect to the primary")
        case asyncpg.DiskFullError() | asyncpg.OutOfMemoryError():
            return StoreUnavailable(
                f"PostgreSQL at {where} has no space left; nothing was stored, free some and try again"
            )
        case asyncpg.LockNotAvailableError() | asyncpg.QueryCanceledError():
            return StoreUnavailable(
                f"PostgreSQL at {where} took too long (a lock or a slow statement); try again"
            )
        case asyncpg.DeadlockDetectedError() | asyncpg.SerializationError():
            return StoreUnavailable(f"PostgreSQL at {where} undid a transaction that met another; try again")
        case asyncpg.TooManyConnectionsError():
            return StoreUnavailable(
                f"PostgreSQL at {where} has no connection left; raise its max_connections, or put a pooler before it"
            )
        case asyncpg.ClientConfigurationError():
            return StoreError(f"the URL of PostgreSQL at {where} says something it cannot: {error}")
        case ConnectionError() if "rejected SSL" in str(error):
            return StoreError(
                f"PostgreSQL at {where} speaks no TLS; set it up there, or drop sslmode from the URL"
            )
        case ssl.SSLCertVerificationError():
            return StoreError(
                f"the certificate of PostgreSQL at {where} is not trusted: {error.verify_message}"
            )
        case socket.gaierror():
            return StoreUnavailable(
                f"PostgreSQL at {where} cannot be reached: the name of its host is unknown; check the URL"
            )
        case TimeoutError():
            return StoreUnavailable(f"PostgreSQL at {where} did not answer in time")
        case _ if isinstance(error, _AWAY):
            return StoreUnavailable(f"PostgreSQL at {where} cannot be reached; is it running?")
        case asyncpg.CharacterNotInRepertoireError() | asyncpg.UntranslatableCharacterError():
            return StoreError("a text contains a NUL character, which PostgreSQL cannot store; remove it")
        case asyncpg.InsufficientPrivilegeError():
            return StoreError(
                f"the database user may not do this at {where}: {error}; connect as the owner of the schema, or grant it:"
                " to migrate CREATE on the database, to work USAGE on schema holdfast and all on its tables and sequences"
            )
    return StoreError(f"PostgreSQL at {where} refused: {type(error).__name__}: {error}")


def behind_a_pooler(url: str) -> StoreError:
    return StoreError(
        f"a pooler stands before {shown(url)} and keeps nothing of ours on a connection; add ?prepare=off to the URL"
    )


def _is_of_a_pooler(error: BaseException) -> bool:
    """Return whether a pooler has refused our settings, or has lent the session with our statement to another client."""
    return isinstance(
        error, (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
    ) or (isinstance(error, asyncpg.ProtocolViolationError) and "startup parameter" in str(error))


def readable(url: str) -> SplitResult:
    """Return the parts of *url*. Raise `UsageError` if its host or port cannot be read."""
    parts = parts_of(url)
    if parts is None:
        raise UsageError(
            "host or port of the URL of PostgreSQL cannot be read; write postgresql://user:password@host:5432/database,"
            " with %-codes for / : @ ? # in the password, and for @ behind the host"
        )
    return parts


def shown(url: str) -> str:
    """Return the address in *url* without user and password."""
    parts = parts_of(url)
    if parts is None:
        return "an address that cannot be read"
    return f"{parts.hostname or 'localhost'}:{parts.port or 5432}{parts.path}"
