"""Classify exceptions as failures (E13): their code, their class and the delay they ask for.

Errors of other libraries are recognized by the name of their module, so that none of those libraries must be
imported here.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

from holdfast.errors import (
    Conflict,
    Fatal,
    Refused,
    Retryable,
    UsageError,
)
from holdfast.jobs.codes import NONE_DECLARED, ErrorClass, ErrorCode, lookup
from holdfast.jobs.fingerprint import fingerprint
from holdfast.jobs.verdict import Failure
from holdfast.redaction import redact_text
from holdfast.resilience.policy import Retry
from holdfast.values.duration import optional

#: A rule of a user: returns a code, or the exception to classify instead, or None to apply the rules below.
Rule = Callable[[BaseException], str | Retryable | Fatal | None]

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
    "httpx": {
        "TimeoutException": "CALL_TIMEOUT",
        "UnsupportedProtocol": "BAD_CALL",
        "TransportError": "NETWORK",
        "InvalidURL": "BAD_CALL",
    },
    "requests": {
        "Timeout": "CALL_TIMEOUT",
        "SSLError": "CERTIFICATE",
        "ConnectionError": "NETWORK",
        "ChunkedEncodingError": "NETWORK",
        "MissingSchema": "BAD_CALL",
        "InvalidSchema": "BAD_CALL",
        "InvalidURL": "BAD_CALL",
        "RequestException": "UNKNOWN",  # a subclass of OSError, but not about files
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
    "psycopg": {
        "OperationalError": "DATABASE",
        "InterfaceError": "DATABASE",
        "DataError": "BAD_CALL",
        "InsufficientPrivilege": "PERMISSION",
    },
    "asyncpg": {
        "DataError": "BAD_CALL",  # before InterfaceError: the client-side DataError is one too
        "InsufficientPrivilegeError": "PERMISSION",
        "InvalidAuthorizationSpecificationError": "PERMISSION",
        "PostgresConnectionError": "DATABASE",
        "InterfaceError": "DATABASE",
        "CannotConnectNowError": "DATABASE",
        "TransactionRollbackError": "DATABASE",
        "InsufficientResourcesError": "DATABASE",
        "OperatorInterventionError": "DATABASE",
    },
    "sqlite3": {"OperationalError": "DATABASE"},
    # OSErrors whose numbers are not errnos: SSL_ERROR_SSL is 1, the same as EPERM.
    "ssl": {"SSLCertVerificationError": "CERTIFICATE", "SSLError": "NETWORK"},
    "socket": {"gaierror": "NETWORK", "herror": "NETWORK"},
}
_BY_NAME["httpx2"] = _BY_NAME["httpx"]
_LIBRARIES = frozenset(_BY_NAME)

_CODE_OF_TYPE: dict[type[BaseException], str | None] = {}

#: AWS codes that come with status 400 and mean 429 or 408.
_AWS = {
    "Throttling": "THROTTLED",
    "ThrottlingException": "THROTTLED",
    "ThrottledException": "THROTTLED",
    "TooManyRequestsException": "THROTTLED",
    "RequestThrottled": "THROTTLED",
    "RequestLimitExceeded": "THROTTLED",
    "ProvisionedThroughputExceededException": "THROTTLED",
    "SlowDown": "THROTTLED",
    "RequestTimeout": "CALL_TIMEOUT",
}


#: Built-in exceptions that never carry a response: the search for one is skipped.
_BUILT_IN = frozenset(
    {Exception, RuntimeError, ValueError, TypeError, KeyError, AttributeError, AssertionError, TimeoutError}
)


def classify(
    error: BaseException,
    *,
    task: str = "",
    policy: Retry | None = None,
    rules: tuple[Rule, ...] = (),
    now: datetime | None = None,
    codes: Mapping[str, ErrorCode] = NONE_DECLARED,
) -> Failure:
    """Return the failure that *error* stands for.

    The task's *rules* are applied first, then the exception lists of its *policy*, then the rules of this
    module.

    Args:
        error: The exception that the handler raised.
        task: The name of the task, for the fingerprint.
        policy: The retry policy of the task.
        rules: The rules of the task.
        now: The current time, to read a Retry-After that is a date.
        codes: The codes that the app declares.
    """
    status = None if type(error) in _BUILT_IN else http_status(error)
    ruling = next((ruling for rule in rules if (ruling := rule(error))), None)
    # A rule cannot replace what the handler raised on purpose; it can only give it a code.
    judged: BaseException = error
    if isinstance(ruling, (Retryable, Fatal)) and not isinstance(error, (Retryable, Fatal)):
        judged = ruling
    code = ruling if isinstance(ruling, str) else _code_of(judged, status)
    known = lookup(code, codes)
    error_class = known.error_class
    after: timedelta | None = None
    match judged:
        case Retryable():
            error_class, after = ErrorClass.TRANSIENT, _requested_delay(judged)
        case Fatal():
            error_class = ErrorClass.PERMANENT
        case _ if policy is not None and not policy.allows(error):
            error_class = ErrorClass.PERMANENT
        case _ if (
            policy is not None and policy.only and error_class in (ErrorClass.PERMANENT, ErrorClass.UNKNOWN)
        ):
            error_class = ErrorClass.TRANSIENT  # the task lists this type as one to retry, which wins
    if status in (429, 503) and after is None:
        after = retry_after(error, now)
        if status == 429 and error_class is not ErrorClass.PERMANENT:
            error_class = ErrorClass.THROTTLED
    text = _first_line(_text(error))
    # The texts of Retryable and Fatal are written for people by the task; other texts are technical.
    is_for_people = isinstance(judged, (Retryable, Fatal)) and bool(judged.args)
    message = _first_line(_text(judged)) if is_for_people else known.message
    failure = _failure(task, code, message, error_class, type(error).__name__, text)
    if status is None and after is None and not isinstance(judged, Fatal):
        return failure
    forget = judged.forget if isinstance(judged, Fatal) else ()
    return replace(failure, gateway_status=status, retry_after=after, forget=forget)


@lru_cache(maxsize=1024)
def _failure(task: str, code: str, message: str, error_class: ErrorClass, name: str, text: str) -> Failure:
    """Return a failure; cached, because a thousand jobs may fail for one cause."""
    detail = f"{name}: {text}" if text else name
    return Failure(code, message, error_class, detail, fingerprint(task, code, name, text))


def _requested_delay(error: Retryable) -> timedelta | None:
    """Return the delay that the task chose, or None if it cannot be read and the policy's applies."""
    try:
        return optional(error.after)
    except UsageError:
        return None


def _text(error: BaseException) -> str:
    """Return the text of *error* in characters that every store can keep. Its `__str__` may raise."""
    try:
        text = str(error)
    except Exception:
        return "(its text cannot be read)"
    # A message may be very long, and only its start is used. No database stores NUL or half a surrogate pair.
    return text[:5000].replace("\0", "�").encode(errors="replace").decode()


def _first_line(text: str) -> str:
    """Return the first line of *text*, cut to 500 characters.

    Secrets are hidden before the cut, because the rest of a cut secret would not be recognized.
    """
    line = redact_text(text.strip().split("\n", 1)[0])
    return line if len(line) <= 500 else line[:499] + "…"


def _code_of(error: BaseException, status: int | None) -> str:
    match error:
        case Fatal():
            return error.code
        case Retryable():
            return error.code or "RETRYABLE"
        case Refused():
            return error.code
    if type(error) not in _BUILT_IN and (aws := _AWS.get(_aws_code(error))):
        return aws
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
    if named == "NETWORK" and _has_certificate_error(error):
        return "CERTIFICATE"
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
            return _ERRNO.get(error.errno or 0, "IO_ERROR")
        case MemoryError():
            return "MEMORY"
        case UsageError() | Conflict() | TypeError() | NotImplementedError():
            return "BAD_CALL"
        case SystemExit() | KeyboardInterrupt():
            return "EXITED"
    return "UNKNOWN"


def _by_name(kind: type[BaseException]) -> str | None:
    if kind not in _CODE_OF_TYPE:
        _CODE_OF_TYPE[kind] = _look_up(kind)
    return _CODE_OF_TYPE[kind]


def _look_up(kind: type[BaseException]) -> str | None:
    for base in kind.__mro__:
        library = base.__module__.partition(".")[0]
        if library in _LIBRARIES:
            code = _BY_NAME[library].get(base.__name__)
            if code:
                return code
    return None


def _has_certificate_error(error: BaseException) -> bool:
    """Return whether a certificate error is among the causes of *error*: clients wrap it, some repeatedly."""
    cause: BaseException | None = error
    for _ in range(8):
        if cause is None:
            return False
        if _by_name(type(cause)) == "CERTIFICATE":
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _aws_code(error: BaseException) -> str:
    response = _get(error, "response")
    inner = response.get("Error") if isinstance(response, dict) else None
    return str(inner.get("Code")) if isinstance(inner, dict) else ""


def _get(holder: object, name: str) -> Any:
    """Return an attribute or None, also when the foreign object raises on access."""
    try:
        return getattr(holder, name, None)
    except Exception:
        return None


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status of the response that *error* carries in one of the usual places, or None."""
    if isinstance(error, (Retryable, Fatal)):
        return None
    response = _get(error, "response")
    if isinstance(response, dict):  # botocore
        meta = response.get("ResponseMetadata")
        value: Any = meta.get("HTTPStatusCode") if isinstance(meta, dict) else None
    else:
        holder = error if response is None else response
        value = _get(holder, "status_code")
        value = _get(holder, "status") if value is None else value
    return value if isinstance(value, int) and 400 <= value <= 599 else None


def retry_after(error: BaseException, now: datetime | None = None) -> timedelta | None:
    """Return the Retry-After of the response that *error* carries (seconds or an HTTP date), or None."""
    response = _get(error, "response")
    if isinstance(response, dict):
        meta = response.get("ResponseMetadata")
        headers: Any = meta.get("HTTPHeaders") if isinstance(meta, dict) else None
    else:
        headers = _get(error if response is None else response, "headers")
    try:
        value = headers.get("retry-after") or headers.get("Retry-After")
    except Exception:  # there are no headers, or they are not a mapping
        return None
    return parse_retry_after(value, now)


def parse_retry_after(value: object, now: datetime | None) -> timedelta | None:
    """Return the delay in a Retry-After header, given in seconds or as a date.

    Return None for nonsense, zero, negative and past times: the delay of the policy applies.
    """
    if not isinstance(value, str) or len(value) > 64:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return timedelta(seconds=min(int(text), 10**8)) or None
    if now is None:
        return None
    try:
        when = parsedate_to_datetime(text)
        left = (when if when.tzinfo else when.replace(tzinfo=UTC)) - now
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return left if left > timedelta() else None
