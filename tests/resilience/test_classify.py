"""What kind of failure an exception is."""

from __future__ import annotations

import errno
import socket
import sqlite3
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import asyncpg
import httpx2
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Conflict, Fatal, QuotaExceeded, Retryable, UnknownTask, UsageError
from holdfast.jobs.codes import ErrorClass, lookup
from holdfast.resilience.classify import classify, http_status, parse_retry_after, retry_after
from holdfast.resilience.policy import Retry

TRANSIENT, THROTTLED, PERMANENT, UNKNOWN = ErrorClass
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
REQUEST = httpx2.Request("GET", "https://service.example/v1")


def kind(error: BaseException) -> tuple[str, ErrorClass]:
    failure = classify(error, now=NOW)
    return failure.code, failure.error_class


def answer(status: int, headers: Mapping[str, str] | None = None) -> httpx2.HTTPStatusError:
    """What `response.raise_for_status()` raises."""
    response = httpx2.Response(status, headers=headers, request=REQUEST)
    with pytest.raises(httpx2.HTTPStatusError) as raised:
        response.raise_for_status()
    return raised.value


def foreign(module: str, name: str, *bases: type[BaseException], **attributes: Any) -> type[Any]:
    """A class as a library that is not installed here would define it."""
    return type(name, bases or (Exception,), {"__module__": module, **attributes})


class Holder:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


# -- HTTP ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("status", "code", "error_class"),
    [
        (400, "HTTP_4XX", PERMANENT),
        (401, "HTTP_4XX", PERMANENT),
        (404, "HTTP_4XX", PERMANENT),
        (406, "HTTP_4XX", PERMANENT),
        (408, "CALL_TIMEOUT", TRANSIENT),
        (413, "HTTP_4XX", PERMANENT),
        (429, "THROTTLED", THROTTLED),
        (500, "HTTP_5XX", TRANSIENT),
        (502, "HTTP_5XX", TRANSIENT),
        (503, "HTTP_5XX", TRANSIENT),
        (599, "HTTP_5XX", TRANSIENT),
    ],
)
def test_an_answer_is_judged_by_its_status(status: int, code: str, error_class: ErrorClass) -> None:  # E13
    failure = classify(answer(status))
    assert (failure.code, failure.error_class, failure.gateway_status) == (code, error_class, status)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (httpx2.ConnectTimeout("slow"), "CALL_TIMEOUT"),
        (httpx2.ReadTimeout("slow"), "CALL_TIMEOUT"),
        (httpx2.PoolTimeout("slow"), "CALL_TIMEOUT"),
        (httpx2.ConnectError("refused"), "NETWORK"),
        (httpx2.ReadError("reset"), "NETWORK"),
        (httpx2.RemoteProtocolError("cut"), "NETWORK"),
        (httpx2.ProxyError("no"), "NETWORK"),
        (httpx2.UnsupportedProtocol("ftp"), "BAD_CALL"),
        (httpx2.InvalidURL("no"), "BAD_CALL"),
    ],
)
def test_errors_of_httpx2_are_recognised(error: Exception, code: str) -> None:  # E13
    assert classify(error).code == code


async def test_errors_that_httpx2_really_raises_are_recognised() -> None:  # E13
    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("connection refused", request=request)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(refuse)) as client:
        with pytest.raises(httpx2.HTTPError) as raised:
            await client.get("https://service.example")
    assert kind(raised.value) == ("NETWORK", TRANSIENT)
    async with httpx2.AsyncClient() as client:
        with pytest.raises(httpx2.HTTPError) as raised:
            await client.get("ftp://service.example")  # refused before anything is sent
    assert kind(raised.value) == ("BAD_CALL", PERMANENT)


def test_a_certificate_behind_a_network_error_is_permanent() -> None:  # E13
    def connect() -> None:
        try:
            try:
                raise ssl.SSLCertVerificationError(1, "certificate verify failed")
            except ssl.SSLError as inner:
                raise foreign("httpcore2", "ConnectError")("wrapped") from inner
        except Exception as middle:
            raise httpx2.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED]") from middle

    with pytest.raises(httpx2.ConnectError) as raised:
        connect()
    assert kind(raised.value) == ("CERTIFICATE", PERMANENT)


REQUEST_EXCEPTION = foreign("requests.exceptions", "RequestException", OSError)
REQUESTS_CONNECTION = foreign("requests.exceptions", "ConnectionError", REQUEST_EXCEPTION)
REQUESTS_TIMEOUT = foreign("requests.exceptions", "Timeout", REQUEST_EXCEPTION)
AIOHTTP_CONNECTION = foreign("aiohttp.client_exceptions", "ClientConnectionError")
OPENAI_CONNECTION = foreign("openai", "APIConnectionError")
BOTO_HTTP = foreign("botocore.exceptions", "HTTPClientError")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (REQUESTS_CONNECTION(), "NETWORK"),
        (REQUESTS_TIMEOUT(), "CALL_TIMEOUT"),
        (foreign("requests.exceptions", "ReadTimeout", REQUESTS_TIMEOUT)(), "CALL_TIMEOUT"),
        (foreign("requests.exceptions", "SSLError", REQUESTS_CONNECTION)(), "CERTIFICATE"),
        (foreign("requests.exceptions", "ChunkedEncodingError", REQUEST_EXCEPTION)(), "NETWORK"),
        (foreign("requests.exceptions", "MissingSchema", REQUEST_EXCEPTION, ValueError)(), "BAD_CALL"),
        (foreign("requests.exceptions", "TooManyRedirects", REQUEST_EXCEPTION)(), "UNKNOWN"),
        (foreign("aiohttp.client_exceptions", "ServerTimeoutError", TimeoutError)(), "CALL_TIMEOUT"),
        (
            foreign("aiohttp.client_exceptions", "ClientOSError", AIOHTTP_CONNECTION, OSError)(
                errno.ENOENT, ""
            ),
            "NETWORK",
        ),
        (
            foreign("aiohttp.client_exceptions", "ClientConnectorCertificateError", AIOHTTP_CONNECTION)(),
            "CERTIFICATE",
        ),
        (foreign("aiohttp.client_exceptions", "ClientPayloadError")(), "NETWORK"),
        (foreign("aiohttp.client_exceptions", "InvalidURL", ValueError)(), "BAD_CALL"),
        (OPENAI_CONNECTION(), "NETWORK"),
        (foreign("openai", "APITimeoutError", OPENAI_CONNECTION)(), "CALL_TIMEOUT"),
        (foreign("botocore.exceptions", "ConnectTimeoutError", BOTO_HTTP)(), "CALL_TIMEOUT"),
        (foreign("botocore.exceptions", "EndpointConnectionError", BOTO_HTTP)(), "NETWORK"),
        (foreign("botocore.exceptions", "SSLError", BOTO_HTTP)(), "CERTIFICATE"),
        (foreign("botocore.exceptions", "NoCredentialsError")(), "PERMISSION"),
        (foreign("my.own", "ConnectTimeoutError", BOTO_HTTP)(), "NETWORK"),  # known by what it is a kind of
        (foreign("requestsaurus", "Timeout")(), "UNKNOWN"),  # only looks alike
    ],
)
def test_errors_of_other_libraries_are_recognised_by_name(error: Exception, code: str) -> None:  # E13
    assert classify(error).code == code


def test_the_status_is_found_where_each_library_keeps_it() -> None:  # E13
    class FalsyResponse:  # requests: an answer with an error is false
        status_code = 503
        headers: Mapping[str, str] = {"Retry-After": "7"}

        def __bool__(self) -> bool:
            return False

    aiohttp = foreign("aiohttp.client_exceptions", "ClientResponseError", status=429, headers={})
    boto = {"Error": {"Code": "NoSuchKey"}, "ResponseMetadata": {"HTTPStatusCode": 404}}
    for error, status in (
        (foreign("requests.exceptions", "HTTPError", response=FalsyResponse())(), 503),
        (foreign("openai", "APIStatusError", response=httpx2.Response(500), status_code=500)(), 500),
        (aiohttp(), 429),
        (foreign("botocore.exceptions", "ClientError", response=boto)(), 404),
        (foreign("some.library", "Oops", status_code=418)(), 418),
    ):
        assert http_status(error) == status
    for value in (200, 302, 600, "500", None, True):
        assert http_status(foreign("some.library", "Oops", status_code=value)()) is None
    assert http_status(Retryable("503")) is None
    assert retry_after(foreign("requests.exceptions", "HTTPError", response=FalsyResponse())()) == timedelta(
        seconds=7
    )


@pytest.mark.parametrize(
    ("said", "status", "expected"),
    [
        ("ThrottlingException", 400, ("THROTTLED", THROTTLED)),
        ("SlowDown", 503, ("THROTTLED", THROTTLED)),
        ("RequestTimeout", 400, ("CALL_TIMEOUT", TRANSIENT)),
        ("NoSuchKey", 404, ("HTTP_4XX", PERMANENT)),
        ("InternalError", 500, ("HTTP_5XX", TRANSIENT)),
    ],
)
def test_aws_says_throttled_in_a_way_of_its_own(
    said: str, status: int, expected: tuple[str, ErrorClass]
) -> None:  # E13
    response = {"Error": {"Code": said}, "ResponseMetadata": {"HTTPStatusCode": status}}
    assert kind(foreign("botocore.exceptions", "ClientError", response=response)()) == expected


@pytest.mark.parametrize(
    "response", [{}, {"ResponseMetadata": None}, {"Error": "x"}, {"ResponseMetadata": {"HTTPHeaders": 3}}]
)
def test_a_botocore_answer_may_be_half_empty(response: dict[str, Any]) -> None:
    error = foreign("botocore.exceptions", "ClientError", response=response)()
    assert http_status(error) is None
    assert retry_after(error) is None
    assert kind(error) == ("UNKNOWN", UNKNOWN)


# -- databases, files, sockets ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (asyncpg.ConnectionDoesNotExistError("gone"), "DATABASE"),
        (asyncpg.CannotConnectNowError("starting up"), "DATABASE"),
        (asyncpg.DeadlockDetectedError("deadlock"), "DATABASE"),
        (asyncpg.SerializationError("again"), "DATABASE"),
        (asyncpg.TooManyConnectionsError("full"), "DATABASE"),
        (asyncpg.AdminShutdownError("bye"), "DATABASE"),
        (asyncpg.QueryCanceledError("statement timeout"), "DATABASE"),
        (asyncpg.InterfaceError("connection is closed"), "DATABASE"),
        (asyncpg.exceptions._base.DataError("invalid input for query argument $1"), "BAD_CALL"),
        (asyncpg.NumericValueOutOfRangeError("too large"), "BAD_CALL"),
        (asyncpg.InsufficientPrivilegeError("no"), "PERMISSION"),
        (asyncpg.InvalidPasswordError("no"), "PERMISSION"),
        (asyncpg.UniqueViolationError("twice"), "UNKNOWN"),
        (psycopg.OperationalError("the server closed the connection"), "DATABASE"),
        (psycopg.errors.DeadlockDetected("deadlock"), "DATABASE"),
        (psycopg.errors.AdminShutdown("bye"), "DATABASE"),
        (psycopg.InterfaceError("closed"), "DATABASE"),
        (psycopg.errors.NumericValueOutOfRange("too large"), "BAD_CALL"),
        (psycopg.errors.InsufficientPrivilege("no"), "PERMISSION"),
        (psycopg.errors.UniqueViolation("twice"), "UNKNOWN"),
        (sqlite3.OperationalError("database is locked"), "DATABASE"),
        (sqlite3.IntegrityError("twice"), "UNKNOWN"),
    ],
)
def test_errors_of_databases_are_recognised(error: Exception, code: str) -> None:  # E13
    assert classify(error).code == code


@pytest.mark.parametrize(
    ("number", "code", "error_class"),
    [
        (errno.ECONNREFUSED, "NETWORK", TRANSIENT),
        (errno.ECONNRESET, "NETWORK", TRANSIENT),
        (errno.ECONNABORTED, "NETWORK", TRANSIENT),
        (errno.EPIPE, "NETWORK", TRANSIENT),
        (errno.EHOSTUNREACH, "NETWORK", TRANSIENT),
        (errno.ENETUNREACH, "NETWORK", TRANSIENT),
        (errno.ETIMEDOUT, "CALL_TIMEOUT", TRANSIENT),
        (errno.EIO, "IO_ERROR", TRANSIENT),
        (errno.EMFILE, "IO_ERROR", TRANSIENT),
        (errno.ENOMEM, "MEMORY", TRANSIENT),
        (errno.ENOSPC, "DISK_FULL", PERMANENT),
        (errno.EDQUOT, "DISK_FULL", PERMANENT),
        (errno.EACCES, "PERMISSION", PERMANENT),
        (errno.EPERM, "PERMISSION", PERMANENT),
        (errno.EROFS, "PERMISSION", PERMANENT),
        (errno.ENOENT, "NOT_FOUND", PERMANENT),
        (errno.ENOTDIR, "NOT_FOUND", PERMANENT),
        (errno.EXDEV, "IO_ERROR", TRANSIENT),
    ],
)
def test_an_oserror_is_judged_by_its_number(number: int, code: str, error_class: ErrorClass) -> None:  # E13
    assert kind(OSError(number, "it failed")) == (code, error_class)


@pytest.mark.parametrize(
    ("error", "code", "error_class"),
    [
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), "CERTIFICATE", PERMANENT),
        (ssl.SSLError(1, "wrong version number"), "NETWORK", TRANSIENT),  # 1 is not EPERM here
        (ssl.SSLEOFError(8, "EOF occurred"), "NETWORK", TRANSIENT),
        (socket.gaierror(socket.EAI_NONAME, "name not known"), "NETWORK", TRANSIENT),
        (socket.gaierror(2, "name not known"), "NETWORK", TRANSIENT),  # 2 is not ENOENT here
        (OSError("without a number"), "IO_ERROR", TRANSIENT),
        (TimeoutError(), "CALL_TIMEOUT", TRANSIENT),
        (ConnectionResetError(), "NETWORK", TRANSIENT),
        (PermissionError(), "PERMISSION", PERMANENT),
        (FileNotFoundError(errno.ENOENT, "no"), "NOT_FOUND", PERMANENT),
        (MemoryError(), "MEMORY", TRANSIENT),
        (TypeError("missing argument"), "BAD_CALL", PERMANENT),
        (NotImplementedError(), "BAD_CALL", PERMANENT),
        (UsageError("no"), "BAD_CALL", PERMANENT),
        (UnknownTask("x", []), "BAD_CALL", PERMANENT),
        (Conflict("no"), "BAD_CALL", PERMANENT),
        (SystemExit(1), "EXITED", UNKNOWN),
        (KeyboardInterrupt(), "EXITED", UNKNOWN),
        (ValueError("?"), "UNKNOWN", UNKNOWN),  # half an answer that was parsed is one too
        (RuntimeError("?"), "UNKNOWN", UNKNOWN),  # and a connection that was closed meanwhile
    ],
)
def test_errors_of_python_itself(error: BaseException, code: str, error_class: ErrorClass) -> None:  # E13
    assert kind(error) == (code, error_class)


# -- the task's own words ---------------------------------------------------------------------------------------------
def test_retryable_and_fatal_say_what_they_mean() -> None:  # E13 E14
    soft = classify(Retryable("The gateway is away.", after="1m", code="GW"))
    assert (soft.code, soft.error_class, soft.retry_after) == ("GW", TRANSIENT, timedelta(minutes=1))
    assert soft.message == "The gateway is away."
    assert classify(Retryable()).code == "RETRYABLE"
    hard = classify(Fatal("Not a PDF.", code="NOT_PDF", forget=["llm"]))
    assert (hard.code, hard.error_class, hard.message) == ("NOT_PDF", PERMANENT, "Not a PDF.")
    assert hard.forget == ("llm",)
    assert classify(Fatal()).code == "FATAL"


def test_the_words_of_other_errors_are_not_shown_to_people() -> None:  # E14
    failure = classify(OSError(errno.EIO, "cannot read", "/srv/secret/a.pdf"))
    assert failure.message == "Reading or writing a file failed."
    assert "/srv/secret" in failure.detail
    assert "\n" not in classify(ValueError("one\ntwo")).detail


def test_a_tasks_rules_win() -> None:  # E13
    def rule(error: BaseException) -> str | None:
        return "DISK_FULL" if "quota" in str(error) else None

    def last(error: BaseException) -> str:
        return "MEMORY"

    assert classify(RuntimeError("over quota"), rules=(rule, last)).code == "DISK_FULL"
    assert classify(RuntimeError("else"), rules=(rule, last)).code == "MEMORY"
    assert classify(RuntimeError("else"), rules=(rule,)).code == "UNKNOWN"
    assert classify(answer(503), rules=(lambda error: "GW_5XX",)).gateway_status == 503


def test_a_tasks_lists_of_types_win_over_what_is_known() -> None:  # E10 E13
    stubborn = Retry(only=[FileNotFoundError, ValueError])
    assert classify(FileNotFoundError(errno.ENOENT, ""), policy=stubborn).error_class is TRANSIENT
    assert classify(ValueError(), policy=stubborn).error_class is TRANSIENT
    assert classify(ConnectionError(), policy=stubborn).error_class is PERMANENT
    proud = Retry(never=[ConnectionError])
    assert classify(ConnectionError(), policy=proud).error_class is PERMANENT
    assert classify(Retryable(), policy=stubborn).error_class is TRANSIENT
    assert classify(Fatal(), policy=Retry(only=[Fatal])).error_class is PERMANENT
    assert classify(answer(429), policy=Retry(never=[httpx2.HTTPStatusError])).error_class is PERMANENT


# -- Retry-After ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_read_in_both_forms(status: int) -> None:  # E12
    assert classify(answer(status, {"Retry-After": "120"}), now=NOW).retry_after == timedelta(minutes=2)
    date = format_datetime(NOW + timedelta(minutes=5), usegmt=True)
    assert classify(answer(status, {"retry-after": date}), now=NOW).retry_after == timedelta(minutes=5)


def test_retry_after_of_another_answer_is_not_asked_for() -> None:  # E12
    assert classify(answer(500, {"Retry-After": "120"}), now=NOW).retry_after is None
    assert classify(answer(404, {"Retry-After": "120"}), now=NOW).retry_after is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "0",
        "-5",
        "1.5",
        "soon",
        "٣",
        "9" * 65,
        b"5",
        5,
        format_datetime(NOW, usegmt=True),
        format_datetime(NOW - timedelta(days=1), usegmt=True),
        "Wed, 99 Foo 2026 99:99:99 GMT",
    ],
)
def test_nonsense_zero_and_past_times_ask_for_nothing(value: object) -> None:  # E12
    assert parse_retry_after(value, NOW) is None


@given(st.text(max_size=80) | st.integers().map(str))
def test_any_header_is_read_without_an_error(text: str) -> None:  # E12
    asked = parse_retry_after(text, NOW)
    assert asked is None or asked > timedelta()


def test_a_date_needs_a_clock() -> None:
    date = format_datetime(NOW + timedelta(minutes=5), usegmt=True)
    assert parse_retry_after(date, None) is None
    assert parse_retry_after("5", None) == timedelta(seconds=5)


# -- errors that fight back -------------------------------------------------------------------------------------------
class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Trap(Exception):
    """Looking at it raises."""

    @property
    def response(self) -> Any:
        raise RuntimeError("the response was not set")

    @property
    def status_code(self) -> Any:
        raise RuntimeError("neither was this")


def test_an_error_that_cannot_be_looked_at_is_unknown_and_nothing_more() -> None:  # E5 E13
    for error in (Wordless(), Trap("x")):
        assert kind(error) == ("UNKNOWN", UNKNOWN)
    assert "Wordless" in classify(Wordless()).detail


def test_a_delay_that_cannot_be_read_is_left_to_the_policy() -> None:  # E5 E13
    assert classify(Retryable(after="soonish")).retry_after is None
    assert classify(Retryable(after=-5)).retry_after is None


@pytest.mark.parametrize("error", [ValueError("a\0b\udcff"), Fatal("a\0b\udcff"), Retryable("a\0b\udcff")])
def test_no_text_is_handed_on_that_a_store_cannot_keep(error: Exception) -> None:  # E5 E14
    failure = classify(error)
    for text in (failure.message, failure.detail):
        assert "\0" not in text
        text.encode()


def test_a_novel_is_cut_to_a_line() -> None:  # E14
    failure = classify(Fatal("x" * 2_000_000))
    assert len(failure.message) == 500
    assert failure.message.endswith("…")


def test_a_quota_that_is_used_up_is_a_permanent_failure() -> None:  # E13 E18
    failure = classify(QuotaExceeded("ann", "manual_retries_per_day", 1, datetime(2026, 4, 1, tzinfo=UTC)))
    assert (failure.code, failure.error_class) == ("QUOTA_EXCEEDED", ErrorClass.PERMANENT)
    assert lookup(failure.code).status == 429


def test_headers_that_are_no_dictionary_ask_for_nothing() -> None:
    error = foreign("some.library", "Oops", response=Holder(status_code=429, headers=["retry-after"]))()
    failure = classify(error)
    assert (failure.code, failure.retry_after) == ("THROTTLED", None)


@pytest.mark.parametrize("length", range(440, 520))
def test_a_secret_is_hidden_before_its_text_is_cut(length: int) -> None:  # E63
    error = ValueError("x" * length + " postgresql://me:hunter2hunter2@db/x")
    assert "hunter" not in classify(error, task="t").detail
