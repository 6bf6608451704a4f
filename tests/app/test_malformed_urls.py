"""No piece of a password stands in an error, however its URL is written wrongly, on any road that takes one."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.cli import main
from holdfast.cli.exit_codes import report_error
from holdfast.client import Client
from holdfast.outbox.transports.targets import read_target
from holdfast.values.addresses import read_target as read_webhook
from holdfast.wiring import (
    SystemClock,
    http_probe,
    make_artifacts,
    make_dispatch,
    make_transport,
)

Capture = pytest.CaptureFixture[str]
CLOCK = SystemClock()

#: Pieces of the password, between signs that end, begin or split parts of a URL.
PIECES = ("fi4st", "sec0nd", "7777", "l4st")
SIGNS = (
    "@",
    ":",
    "/",
    "?",
    "#",
    "%",
    "[",
    "]",
    "%zz",
    " ",
    "\\",
    "\n",
    ",",
    "&a=",
    "?a=",
    "://",
    "ﬀ",
    "℀",
    ";",
    "'",
    "=",
)


def _passwords() -> Iterator[str]:
    first, second, digits, last = PIECES
    for sign in SIGNS:
        yield f"{first}{sign}{last}"
        yield f"{digits}{sign}{last}"
        yield f"{digits}{sign}{digits}"
        for other in SIGNS:
            yield f"{first}{sign}{second}{other}{digits}"


def _urls(scheme: str) -> Iterator[str]:
    for password in _passwords():
        yield f"{scheme}://me:{password}@127.0.0.1:1/x"
    for whole in (
        "me:fi4st@127.0.0.1:1/x",
        ":fi4st@h",
        "me:fi4st@h:port",
        "me:fi4st@[::1",
    ):
        for between in ("://", ":/", ":", "//", "", " ://", ":///", "+x://", "://://", "@://"):
            yield f"{scheme}{between}{whole}"


async def _open(url: str) -> None:
    async with Holdfast(url) as app:
        await app.jobs.counts()


def _transport(url: str) -> object:
    options: dict[str, Any] = {}
    return make_transport(url, {"t": read_target("t", url, options)}, CLOCK, lambda: None)  # type: ignore[arg-type, return-value]


ROADS: dict[str, tuple[tuple[str, ...], Callable[[str], object]]] = {
    "dispatch": (("redis", "rediss", "amqp", "amqps", "memory", "x"), lambda url: make_dispatch(url, "n", CLOCK)),
    "topic": (("amqp", "redis", "nats", "tls", "https", "x"), _transport),
    "topic of an app": (("amqp", "redis", "nats"), lambda url: Holdfast("memory://").topic("t", to=url)),
    "setting": (("amqp", "redis"), lambda url: Holdfast("memory://", dispatch=url)),
    "setting of a place": (("s3", "gs"), lambda url: Holdfast("memory://", artifacts=url)),
    "artifacts": (("s3", "file", "x"), make_artifacts),
    "probe": (("http", "https", "x"), http_probe),
    "webhook": (("http", "https", "x"), read_webhook),
    "client": (("http", "https", "x"), Client),
}  # fmt: skip


def _said(error: BaseException, capsys: Capture) -> str:
    """All that a person may come to see of *error*: by the command line, in a log, and its causes' words."""
    report_error(error)
    return capsys.readouterr().err + str(error) + "".join(traceback.format_exception_only(error))


@pytest.mark.parametrize(
    ("road", "scheme"), [(road, scheme) for road, (schemes, _) in ROADS.items() for scheme in schemes]
)
async def test_no_piece_of_a_password_is_in_an_error(road: str, scheme: str, capsys: Capture) -> None:  # E63
    _, call = ROADS[road]
    refused = 0
    for url in _urls(scheme):
        try:
            call(url)
        except Exception as error:
            refused += 1
            said = _said(error, capsys)
            assert not [piece for piece in PIECES if piece in said], (url, said)
    assert refused


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "memory", "mysql"])
async def test_no_piece_of_a_password_is_in_an_error_of_a_store(
    scheme: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:  # E63
    monkeypatch.chdir(tmp_path)
    refused = 0
    for url in _urls(scheme):
        try:
            await _open(url)
        except Exception as error:
            refused += 1
            said = _said(error, capsys)
            assert not [piece for piece in PIECES if piece in said], (url, said)
    assert refused


@pytest.mark.parametrize(
    "url", ["postgresql://u:p@ss:w0rd@127.0.0.1:1/x", "postgres:u:w0rd@h", "w0rd@h", "u:w0rd@h://x"]
)
def test_a_command_shows_none_either(url: str, capsys: Capture) -> None:  # E63
    assert main(["jobs", "list", "--url", url]) in (2, 5)
    said = capsys.readouterr()
    assert "w0rd" not in said.out + said.err
    assert said.err.count("\n") == 1
