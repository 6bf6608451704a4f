"""What kind of failure an exception is (E13): its code, its class and the delay it asks for.

Errors of other libraries are recognised by the name of the module that defines them, so none of those libraries
is imported here: who does not use them does not pay for them.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from holdfast.domain.codes import ErrorClass, lookup
from holdfast.domain.duration import optional
from holdfast.domain.fingerprint import fingerprint
from holdfast.domain.policy import Retry
from holdfast.domain.verdict import Failure
from holdfast.errors import Conflict, Fatal, Retryable, UsageError

#: A user's own rule: answers a code, or None to leave it to the rules below.
Rule = Callable[[BaseException], str | None]

_ERRNO = {
    errno.ENOSPC: "DISK_FULL",
    errno.EDQUOT: "DISK_FULL",
    errno.EACCES: "PERMISSION",
    errno.EPERM: "PERMISSION",
    errno.EROFS: "PERMISSION",
    errno.ENOENT: "NOT_FOUND",
    errno.ENOTDIR: "NOT_FOUND",
    errno.EIO: "IO_ERROR",
    errno.EMFILE: "IO_ERROR",
    errno.ENFILE: "IO_ERROR",
    errno.ENOMEM: "MEMORY",
    errno.ETIMEDOUT: "CALL_TIMEOUT",
    errno.ECONNREFUSED: "NETWORK",
    errno.ECONNRESET: "NETWORK",
    errno.ECONNABORTED: "NETWORK",
    errno.EPIPE: "NETWORK",
    errno.EHOSTUNREACH: "NETWORK",
    errno.ENETUNREACH: "NETWORK",
    errno.EADDRNOTAVAIL: "NETWORK",
}

#: Names of exception classes, by the library that defines them. A class is looked up along its bases.
_BY_NAME: dict[str, dict[str, str]] = {
    "httpx": {"TimeoutException": "CALL_TIMEOUT", "TransportError": "NETWORK", "InvalidURL": "BAD_CALL"},
    "requests": {
        "Timeout": "CALL_TIMEOUT",
        "SSLError": "CERTIFICATE",
        "ConnectionError": "NETWORK",
        "ChunkedEncodingError": "NETWORK",
    },
    "aiohttp": {
        "ServerTimeoutError": "CALL_TIMEOUT",
        "ClientConnectorCertificateError": "CERTIFICATE",
        "ClientConnectionError": "NETWORK",
        "ClientPayloadError": "NETWORK",
        "InvalidURL": "BAD_CALL",
    },
    "openai": {"APITimeoutError": "CALL_TIMEOUT", "APIConnectionError": "NETWORK"},
    "botocore": {
        "ConnectTimeoutError": "CALL_TIMEOUT",
        "ReadTimeoutError": "CALL_TIMEOUT",
        "SSLError": "CERTIFICATE",
        "HTTPClientError": "NETWORK",
        "NoCredentialsError": "PERMISSION",
    },
    "psycopg": {"OperationalError": "DATABASE", "InterfaceError": "DATABASE"},
    "asyncpg": {
        "PostgresConnectionError": "DATABASE",
        "InterfaceError": "DATABASE",
        "CannotConnectNowError": "DATABASE",
        "TransactionRollbackError": "DATABASE",
        "InsufficientResourcesError": "DATABASE",
        "OperatorInterventionError": "DATABASE",
    },
    "sqlite3": {"OperationalError": "DATABASE"},
    "ssl": {"SSLCertVerificationError": "CERTIFICATE"},
}
_BY_NAME["httpx2"] = _BY_NAME["httpx"]
_LIBRARIES = frozenset(_BY_NAME)


def classify(
    error: BaseException,
    *,
    task: str = "",
    policy: Retry | None = None,
    rules: tuple[Rule, ...] = (),
    now: datetime | None = None,
) -> Failure:
    """Say what *error* is. The task's own rules win, then its exception lists, then ours."""
    status = http_status(error)
    code = next((code for rule in rules if (code := rule(error))), None) or _code_of(error, status)
    known = lookup(code)
    error_class = known.error_class
    after: timedelta | None = None
    match error:
        case Retryable():
            error_class, after = ErrorClass.TRANSIENT, optional(error.after)
        case Fatal():
            error_class = ErrorClass.PERMANENT
        case _ if policy is not None and not policy.allows(error):
            error_class = ErrorClass.PERMANENT
        case _ if (
            policy is not None and policy.only and error_class in (ErrorClass.PERMANENT, ErrorClass.UNKNOWN)
        ):
            error_class = ErrorClass.TRANSIENT  # the task names this type as one to retry: its word wins
    if status in (429, 503) and after is None:
        after = retry_after(error, now)
        if status == 429 and error_class is not ErrorClass.PERMANENT:
            error_class = ErrorClass.THROTTLED
    text = _first_line(str(error))
    # The words of Retryable and Fatal are the task's own, written for people; other texts are technical.
    ours = isinstance(error, (Retryable, Fatal)) and bool(error.args)
    return Failure(
        code=code,
        message=text if ours else known.message,
        error_class=error_class,
        detail=f"{type(error).__name__}: {text}" if text else type(error).__name__,
        fingerprint=fingerprint(task, code, type(error).__name__, text),
        gateway_status=status,
        retry_after=after,
        forget=error.forget if isinstance(error, Fatal) else (),
    )


def _first_line(text: str) -> str:
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= 500 else line[:499] + "…"


def _code_of(error: BaseException, status: int | None) -> str:
    match error:
        case Fatal():
            return error.code
        case Retryable():
            return error.code or "RETRYABLE"
    if status is not None:
        if status == 408:
            return "CALL_TIMEOUT"
        if status == 429:
            return "THROTTLED"
        if status >= 500:
            return "HTTP_5XX"
        if status >= 400:
            return "HTTP_4XX"
    named = _by_name(type(error))
    if named:
        return named
    match error:
        case TimeoutError():
            return "CALL_TIMEOUT"
        case ConnectionError():
            return "NETWORK"
        case PermissionError():
            return "PERMISSION"
        case OSError():
            return _ERRNO.get(
                error.errno or 0, "NETWORK" if type(error).__module__ == "socket" else "IO_ERROR"
            )
        case MemoryError():
            return "MEMORY"
        case UsageError() | Conflict() | TypeError() | NotImplementedError():
            return "BAD_CALL"
        case SystemExit() | KeyboardInterrupt():
            return "EXITED"
    return "UNKNOWN"


def _by_name(kind: type[BaseException]) -> str | None:
    for base in kind.__mro__:
        library = base.__module__.partition(".")[0]
        if library in _LIBRARIES:
            code = _BY_NAME[library].get(base.__name__)
            if code:
                return code
    return None


def http_status(error: BaseException) -> int | None:
    """The status of the answer that *error* carries, in any of the usual places."""
    if isinstance(error, (Retryable, Fatal)):
        return None
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        value: Any = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    elif response is not None:
        value = getattr(response, "status_code", getattr(response, "status", None))
    else:
        value = getattr(error, "status_code", getattr(error, "status", None))
    return value if isinstance(value, int) and 400 <= value <= 599 else None


def retry_after(error: BaseException, now: datetime | None = None) -> timedelta | None:
    """The Retry-After of the answer that *error* carries: seconds or an HTTP date."""
    holder = getattr(error, "response", None)
    headers = (
        holder.get("ResponseMetadata", {}).get("HTTPHeaders")
        if isinstance(holder, dict)
        else getattr(holder, "headers", getattr(error, "headers", None))
    )
    if headers is None:
        return None
    try:
        value = headers.get("retry-after") or headers.get("Retry-After")
    except (AttributeError, TypeError):
        return None
    return parse_retry_after(value, now)


def parse_retry_after(value: object, now: datetime | None) -> timedelta | None:
    """Read both forms; nonsense, negative and past times ask for nothing."""
    if not isinstance(value, str) or len(value) > 64:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return timedelta(seconds=min(int(text), 10**8))
    if now is None:
        return None
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(timedelta(), when - now)
