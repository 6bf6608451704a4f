"""What was said during an attempt: bounded, without secrets, in characters that any store can hold."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast.attempt_log import LONGEST, MOST_BYTES, MOST_LINES, AttemptLog
from holdfast.worker.log_capture import LogCapture, capture_logs

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def log_of(*texts: str) -> AttemptLog:
    log = AttemptLog()
    for text in texts:
        log.add(NOON, "INFO", text)
    return log


def test_a_line_says_when_how_grave_and_what() -> None:  # E42
    log = AttemptLog()
    log.add(NOON.astimezone(timezone(timedelta(hours=3))), "WARNING", "slow", {"pages": 3, "why": None})
    assert log.lines() == ("2026-03-01T12:00:00.000Z WARNING slow pages=3 why=None",)


def test_the_oldest_lines_give_way_and_their_number_is_told() -> None:  # E42
    lines = log_of(*(f"line {n}" for n in range(MOST_LINES + 7))).lines()
    assert len(lines) == MOST_LINES + 1
    assert lines[0] == "… 7 earlier lines dropped"
    assert lines[1].endswith("line 7")
    assert lines[-1].endswith(f"line {MOST_LINES + 6}")


def test_one_that_is_dropped_is_one_line() -> None:
    assert log_of(*["x"] * (MOST_LINES + 1)).lines()[0] == "… 1 earlier line dropped"


@pytest.mark.parametrize("letter", ["x", "ü", "字"])
def test_the_bytes_are_bounded_too(letter: str) -> None:  # E42
    lines = log_of(*(letter * 1000 for _ in range(50))).lines()
    kept = sum(len(line.encode()) for line in lines[1:])
    assert MOST_BYTES - 4000 < kept <= MOST_BYTES
    assert lines[0] == f"… {50 - (len(lines) - 1)} earlier lines dropped"


def test_a_line_that_is_a_document_is_cut() -> None:  # E42
    [line] = log_of("x" * 1_000_000).lines()
    assert line.endswith("xxx… (1,000,000 characters)")
    assert len(line) < LONGEST + 100


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("connecting to postgresql://ann:hunter2@db/x", "hunter2"),
        ("password=hunter2 for ann", "hunter2"),
        ("Authorization: Bearer abcdef123456", "abcdef123456"),
    ],
)
def test_secrets_are_not_kept(text: str, hidden: str) -> None:  # E14 E42 E63
    [line] = log_of(text).lines()
    assert hidden not in line
    assert "***" in line


def test_secret_facts_are_not_kept() -> None:  # E14 E42 E63
    log = AttemptLog()
    log.add(NOON, "INFO", "asking", {"api_key": "hunter2", "headers": {"Authorization": "hunter2"}, "n": 1})
    assert "hunter2" not in log.lines()[0]
    assert log.lines()[0].endswith("n=1")


def test_what_no_store_can_hold_is_replaced() -> None:  # E42
    [line] = log_of("a\0b \ud800 c").lines()
    assert line.endswith("a�b ? c")
    line.encode()


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_a_value_that_cannot_be_said_does_no_harm() -> None:
    log = AttemptLog()
    log.add(NOON, "INFO", "look", {"it": Mute(), "n": 1})
    assert log.lines()[0].endswith("look it=(its text cannot be read) n=1")


def test_threads_may_speak_at_once() -> None:  # E42
    log = AttemptLog()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: log.add(NOON, "INFO", f"line {n}"), range(5000)))
        assert len(log.lines()) == MOST_LINES + 1
    assert log.lines()[0] == f"… {5000 - MOST_LINES:,} earlier lines dropped"


# -- capturing ------------------------------------------------------------------------------------------------------------
def test_what_is_logged_is_heard_with_its_stack() -> None:  # E42
    log, logger = AttemptLog(), logging.getLogger("shop.orders")
    ears = LogCapture(lambda: log)
    logger.addHandler(ears)
    try:
        logger.warning("%s of %s", 1, "two")
        try:
            raise ValueError("deep inside")
        except ValueError:
            logger.exception("it broke")
        logger.warning({"event": "structured", "pages": 3, "_record": object()})
    finally:
        logger.removeHandler(ears)
    first, second, third = log.lines()
    assert first.endswith("Z WARNING shop.orders: 1 of two")
    assert "ERROR shop.orders: it broke\nTraceback (most recent call last):" in second
    assert second.endswith("ValueError: deep inside")
    assert third.endswith("WARNING shop.orders: structured pages=3")


def test_many_workers_have_one_pair_of_ears() -> None:  # E42
    root = logging.getLogger()
    before = list(root.handlers)
    with capture_logs():
        with capture_logs():
            assert len(root.handlers) == len(before) + 1
        assert len(root.handlers) == len(before) + 1
        with capture_logs(False):
            assert len(root.handlers) == len(before) + 1
    assert root.handlers == before


def test_a_program_without_logging_still_sees_its_warnings(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:  # E42
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with capture_logs():
        logging.getLogger("shop").warning("look out")
        logging.getLogger("shop").info("nothing")
        other = logging.NullHandler()
        logging.getLogger("shop").addHandler(other)
        logging.getLogger("shop.door").warning("heard by another")
        logging.getLogger("shop").removeHandler(other)
    assert capfd.readouterr().err == "look out\n"
