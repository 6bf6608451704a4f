"""What kind of failure an exception is (E13): its code, its class and the delay it asks for.

Errors of other libraries are recognised by the name of the module that defines them, so none of those libraries
is imported here: who does not use them does not pay for them.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

from holdfast.domain.codes import NONE_DECLARED, ErrorClass, ErrorCode, lookup
from holdfast.domain.duration import optional
from holdfast.domain.fingerprint import fingerprint
from holdfast.domain.policy import Retry
from holdfast.domain.verdict import Failure
from holdfast.errors import Conflict, Fatal, InsufficientCredits, QuotaExceeded, Retryable, UsageError
from holdfast.redaction import redact_text

#: A user's own rule: answers a code, or what the handler should have raised, or None to leave it to the rules below.
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
        "RequestException": "UNKNOWN",  # an OSError by birth, but nothing of it is about files
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
        "DataError": "BAD_CALL",  # before InterfaceError: its own check of arguments is one too
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
    # OSErrors whose numbers are not of the errno table: SSL_ERROR_SSL is 1, as EPERM is.
    "ssl": {"SSLCertVerificationError": "CERTIFICATE", "SSLError": "NETWORK"},
    "socket": {"gaierror": "NETWORK", "herror": "NETWORK"},
}
_BY_NAME["httpx2"] = _BY_NAME["httpx"]
_LIBRARIES = frozenset(_BY_NAME)

_SEEN: dict[type[BaseException], str | None] = {}

#: What AWS says with status 400, and means 429 or 408.
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


#: Exceptions of the language itself that carry no answer of a service: no need to look for one.
_BARE = frozenset(
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
    """Say what *error* is. The task's own rules win, then its exception lists, then ours; *codes* are the app's own."""
    status = None if type(error) in _BARE else http_status(error)
    said = next((said for rule in rules if (said := rule(error))), None)
    # What the handler raised on purpose is its last word; a rule may only name it.
    word = (
        said if isinstance(said, (Retryable, Fatal)) and not isinstance(error, (Retryable, Fatal)) else error
    )
    code = said if isinstance(said, str) else _code_of(word, status)
    known = lookup(code, codes)
    error_class = known.error_class
    after: timedelta | None = None
    match word:
        case Retryable():
            error_class, after = ErrorClass.TRANSIENT, _asked(word)
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
    text = _first_line(_text(error))
    # The words of Retryable and Fatal are the task's own, written for people; other texts are technical.
    ours = isinstance(word, (Retryable, Fatal)) and bool(word.args)
    message = _first_line(_text(word)) if ours else known.message
    failure = _failure(task, code, message, error_class, type(error).__name__, text)
    if status is None and after is None and not isinstance(word, Fatal):
        return failure
    forget = word.forget if isinstance(word, Fatal) else ()
    return replace(failure, gateway_status=status, retry_after=after, forget=forget)


@lru_cache(maxsize=1024)
def _failure(task: str, code: str, message: str, error_class: ErrorClass, name: str, text: str) -> Failure:
    """A failure is a value: when a thousand jobs fail for one cause, it is made once."""
    detail = f"{name}: {text}" if text else name
    return Failure(code, message, error_class, detail, fingerprint(task, code, name, text))


def _asked(error: Retryable) -> timedelta | None:
    """The delay of the task's own choice; one that cannot be read is left to the policy."""
    try:
        return optional(error.after)
    except UsageError:
        return None


def _text(error: BaseException) -> str:
    """What *error* says, in characters that every store can keep. Its __str__ is not our code: it may raise."""
    try:
        text = str(error)
    except Exception:
        return "(it has no words)"
    # Only the head can matter, and a message may be as long as a file. NUL and half a surrogate pair fit no database.
    return text[:5000].replace("\0", "�").encode(errors="replace").decode()


def _first_line(text: str) -> str:
    """The first line of *text*, cut. Secrets are hidden before: what is left of one that was cut cannot be told by its looks."""
    line = redact_text(text.strip().split("\n", 1)[0])
    return line if len(line) <= 500 else line[:499] + "…"


def _code_of(error: BaseException, status: int | None) -> str:
    match error:
        case Fatal():
            return error.code
        case Retryable():
            return error.code or "RETRYABLE"
        case InsufficientCredits() | QuotaExceeded():
            return error.code
    if type(error) not in _BARE and (aws := _AWS.get(_aws_code(error))):
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
    if named == "NETWORK" and _is_untrusted(error):
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
    if kind not in _SEEN:
        _SEEN[kind] = _look_up(kind)
    return _SEEN[kind]


def _look_up(kind: type[BaseException]) -> str | None:
    for base in kind.__mro__:
        library = base.__module__.partition(".")[0]
        if library in _LIBRARIES:
            code = _BY_NAME[library].get(base.__name__)
            if code:
                return code
    return None


def _is_untrusted(error: BaseException) -> bool:
    """Whether a certificate is behind a network error: clients wrap it, some more than once."""
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
    """An attribute, or None. On a foreign object even looking may raise."""
    try:
        return getattr(holder, name, None)
    except Exception:
        return None


def http_status(error: BaseException) -> int | None:
    """The status of the answer that *error* carries, in any of the usual places."""
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
    """The Retry-After of the answer that *error* carries: seconds or an HTTP date."""
    response = _get(error, "response")
    if isinstance(response, dict):
        meta = response.get("ResponseMetadata")
        headers: Any = meta.get("HTTPHeaders") if isinstance(meta, dict) else None
    else:
        headers = _get(error if response is None else response, "headers")
    try:
        value = headers.get("retry-after") or headers.get("Retry-After")
    except Exception:  # no headers, or not like a dictionary
        return None
    return parse_retry_after(value, now)


def parse_retry_after(value: object, now: datetime | None) -> timedelta | None:
    """Read both forms; nonsense, zero, negative and past times ask for nothing: the policy's own delay is used."""
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
