"""Codes, messages and knobs: what people see, and what operators set."""

from __future__ import annotations

import errno
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast import Fatal, Retryable, UsageError
from systems.common.parts import Part, sweep_parts
from systems.converter.codes import CODES, Code, message, public_code, safe_words
from systems.converter.failures import SourceGone, failed, rule
from systems.converter.gateway_client import BrokenAnswer, Wellformed
from systems.converter.paths import result_path
from systems.converter.settings import Settings
from systems.converter.tasks import build, retry_policy


def answered(status: int, body: Any = None, **headers: str) -> httpx2.HTTPStatusError:
    request = httpx2.Request("POST", "http://gateway/convert")
    response = httpx2.Response(status, json=body, headers=headers, request=request)
    return httpx2.HTTPStatusError(f"{status}", request=request, response=response)


def test_there_are_ten_codes_each_with_one_line_in_two_tenses() -> None:  # C3
    assert len(CODES) == len(Code) == 10
    for known in CODES.values():
        for line in (known.trying, known.final):
            assert "\n" not in line
            assert line.endswith(".")
        assert "retry" not in known.final.lower() or "Use Retry" in known.final  # C8


@pytest.mark.parametrize(
    ("inner", "public"),
    [
        ("GW_UNAVAILABLE", "GW_5XX"),
        ("NETWORK", "GW_5XX"),
        ("PARSE_ERROR", "GW_4XX"),
        ("VALIDATION_ERROR", "GW_4XX"),
        ("INVALID_MAPPING", "GW_4XX"),
        ("MEMORY_ERROR", "UNKNOWN"),
        ("EXECUTION_TIMEOUT", "GW_TIMEOUT"),
        ("NOT_PDF", "NOT_PDF"),
        ("no such code", "UNKNOWN"),
        (None, "UNKNOWN"),
    ],
)
def test_inner_codes_have_a_public_name(inner: str | None, public: str) -> None:  # C3
    assert public_code(inner) == public


def test_memory_that_ran_out_here_is_a_matter_of_storage() -> None:  # C3
    assert public_code("MEMORY_ERROR", local_pressure=True) is Code.IO_ERROR


@pytest.mark.parametrize(
    ("error", "code", "again"),
    [
        (answered(400), "GW_4XX", False),
        (answered(406), "GW_4XX", False),
        (answered(413), "GW_4XX", False),
        (answered(415), "GW_4XX", False),
        (answered(422), "GW_4XX", False),
        (answered(408), "GW_TIMEOUT", True),
        (answered(429), "GW_5XX", True),
        (answered(500), "GW_5XX", True),
        (answered(503), "GW_5XX", True),
        (answered(302), "GW_5XX", True),
        (httpx2.ConnectError("refused"), "GW_5XX", True),
        (httpx2.ReadError("reset"), "GW_5XX", True),
        (httpx2.ReadTimeout("slow"), "GW_TIMEOUT", True),
        (TimeoutError(), "GW_TIMEOUT", True),
        (BrokenAnswer("garbage"), "GW_5XX", True),
        (OSError(errno.EIO, "io"), "IO_ERROR", True),
        (OSError(errno.ENOSPC, "full"), "IO_ERROR", False),
        (OSError(errno.EDQUOT, "full"), "IO_ERROR", False),
        (MemoryError(), "IO_ERROR", True),
        (SourceGone(), "EXPIRED", False),
        (RuntimeError("a bug"), "UNKNOWN", True),
    ],
)
def test_each_failure_has_its_code_and_its_future(error: Exception, code: str, again: bool) -> None:  # C4
    word = rule(failed(error, attempt=1, max_attempts=3))
    assert isinstance(word, Retryable if again else Fatal)
    assert word.code == code


def test_the_last_attempt_promises_no_retry() -> None:  # C8
    first, last = (failed(answered(502), attempt=n, max_attempts=3).verdict for n in (1, 3))
    assert str(first) == "Converter service is having an issue. We’ll retry shortly."
    assert "We’ll retry" not in str(last)
    assert "We’ll retry" not in str(failed(OSError(errno.EIO, "x"), attempt=2, max_attempts=3).verdict)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("There is no mapping 'docx'; choose one of text, jats, alto.", True),
        ("cannot open /srv/gateway/spool/1.pdf", False),
        ("<html>Bad Gateway", False),
        ("two\nlines", False),
        ("x" * 201, False),
        ("", False),
    ],
)
def test_the_gateways_words_are_shown_only_when_safe(words: str, shown: bool) -> None:  # C8
    assert safe_words(words) == (words if shown else "")
    line = str(failed(answered(406, {"detail": words}), attempt=1, max_attempts=3).verdict)
    assert line == message(Code.GW_4XX, final=True) + (f" {words}" if shown else "")


def test_knobs_have_the_names_and_defaults_of_the_document() -> None:  # C11
    document = {
        "RETRY_MAX_ATTEMPTS": 3,
        "RETRY_BASE_DELAY_MS": 5_000,
        "RETRY_JITTER_MAX_MS": 5_000,
        "WORKER_LEASE_TTL_SEC": 90,
        "GATEWAY_TIMEOUT_MS": 60_000,
        "WORKER_CONCURRENCY": 10,
        "CIRCUIT_WINDOW": "20",
        "CIRCUIT_FAIL_THRESHOLD": 0.5,
        "CIRCUIT_COOLDOWN_MS": 30_000,
        "CIRCUIT_MODE": "hold",
        "DATABASE_URL": "sqlite:///data/converter.db",
        "GATEWAY_URL": "http://127.0.0.1:8080",
        "UPLOADS_DIR": Path("data/uploads"),
        "RESULTS_DIR": Path("data/results"),
    }
    settings = Settings.read({})
    assert {name: getattr(settings, name.lower()) for name in document} == document
    assert settings == Settings.read({name: str(value) for name, value in document.items()})
    assert build(settings).app.runtime.settings.grace == timedelta(seconds=30)
    given = Settings.read(
        {"CIRCUIT_WINDOW": "120s", "RETRY_BASE_DELAY_MS": "10", "UPLOADS_DIR": "up", "X": "y"}
    )
    assert (given.circuit_window, given.retry_base_delay_ms, given.uploads_dir) == ("120s", 10, Path("up"))


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RETRY_MAX_ATTEMPTS", "0"),
        ("RETRY_MAX_ATTEMPTS", "three"),
        ("GATEWAY_TIMEOUT_MS", "-1"),
        ("CIRCUIT_FAIL_THRESHOLD", "50"),
        ("CIRCUIT_FAIL_THRESHOLD", "nan"),
        ("CIRCUIT_WINDOW", "soon"),
        ("CIRCUIT_MODE", "open"),
        ("GATEWAY_URL", "localhost:8080"),
    ],
)
def test_a_knob_that_cannot_be_read_is_named_in_one_line(variable: str, value: str) -> None:  # C11
    with pytest.raises(UsageError, match=f"^{variable} ") as refused:
        Settings.read({variable: value})
    assert "\n" not in str(refused.value)


def test_the_policy_is_that_of_the_document() -> None:  # C4
    policy = retry_policy(Settings())
    assert [policy.backoff.delay(attempt, 0.0).total_seconds() for attempt in (1, 2)] == [5, 10]
    assert [policy.backoff.delay(attempt, 1.0).total_seconds() for attempt in (1, 2)] == [10, 15]
    assert policy.attempts_by_code == {"IO_ERROR": 2}
    assert retry_policy(Settings(retry_max_attempts=1, retry_jitter_max_ms=0)).max_attempts == 1


def test_the_policy_of_the_older_document_is_chosen_by_a_setting() -> None:  # C4 E11
    older = Settings.read({"RETRY_BACKOFF": "triple", "RETRY_MAX_ATTEMPTS": "4"})
    policy = retry_policy(older)
    assert policy.max_attempts == 4
    waits = [
        [policy.backoff.delay(n, chance).total_seconds() for n in (1, 2, 3)] for chance in (0.0, 0.5, 1.0)
    ]
    assert waits == [[4, 12, 36], [5, 15, 45], [6, 18, 54]]  # ±20 %
    assert policy.attempts_by_code == {"IO_ERROR": 2}
    with pytest.raises(UsageError, match="it is one of double, triple"):
        Settings.read({"RETRY_BACKOFF": "linear"})


def test_how_many_uploads_are_taken_is_a_count_in_a_time() -> None:  # C11
    assert Settings.read({"UPLOAD_RATE": "5/s"}).upload_rate == "5/s"
    for wrong in ("5", "0/min", "many/min", "5/fortnight"):
        with pytest.raises(UsageError, match="UPLOAD_RATE is"):
            Settings.read({"UPLOAD_RATE": wrong})


@pytest.mark.parametrize("xml", [b"", b"<a>", b"<a/><b/>", b"\x00\xff", b"<!DOCTYPE a><a/>", b"{}"])
def test_an_answer_that_is_not_xml_is_a_broken_one(xml: bytes) -> None:
    reader = Wellformed()
    with pytest.raises(BrokenAnswer):
        reader.feed(xml, last=True)


def test_a_result_appears_whole_or_not_at_all(tmp_path: Path) -> None:  # C6
    target = tmp_path / "results" / "a.xml"
    with Part(target, "1") as part:
        part.write(b"<half")  # and the block is left before it is published
    assert list(target.parent.iterdir()) == []
    with Part(target, "2") as part:
        part.write(b"<whole/>")
        assert not target.exists()
        part.publish()
    assert target.read_bytes() == b"<whole/>"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("has_links", [True, False])
def test_what_was_published_first_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:  # C6
    def no_links(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if has_links:
        monkeypatch.setattr(Path, "exists", lambda _: False)  # as whoever looked a moment too early
    else:
        monkeypatch.setattr(os, "link", no_links)
    target = tmp_path / "results" / "a.xml"
    for writer, xml in (("2", b"<first/>"), ("1", b"<late/>")):
        with Part(target, writer) as part:
            part.write(xml)
            part.publish()
    assert target.read_bytes() == b"<first/>"
    assert list(target.parent.iterdir()) == [target]


def test_what_a_killed_worker_left_half_written_is_swept(tmp_path: Path) -> None:  # C9
    for name, age in ((".a.xml.1.part", 7200), (".b.xml.2.part", 60), ("c.xml", 7200)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (10_000 - age, 10_000 - age))
    assert sweep_parts(tmp_path, now=10_000) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [".b.xml.2.part", "c.xml"]
    assert sweep_parts(tmp_path / "missing", now=10_000) == 0


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "", "0" * 36, "x.pdf\x00"])
def test_only_a_job_has_a_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        result_path(tmp_path, name)
