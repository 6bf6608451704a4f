"""Tracebacks as values: what is in them, what is not, and how large they get."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from functools import partial

import pytest

from holdfast.engine.tracebacks import carry, file_name, raised_of, traced
from holdfast.jobs.tracebacks import MOST_BYTES, REMOTE, Raised, Traceback, observe, render
from holdfast.jobs.verdict import Failure
from holdfast.redaction import HIDDEN

HERE = "tests/jobs/test_tracebacks.py"


def caught(function: Callable[[], object]) -> Exception:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("it raised nothing")


def text_of(function: Callable[[], object]) -> str:
    return Traceback.of(raised_of(caught(function))).text


def fall(depth: int = 0, message: str = "broken") -> None:
    password = "hunter2"  # noqa: F841 - a variable that must not be seen
    if depth:
        fall(depth - 1, message)
    raise ValueError(message)


def chained() -> None:
    try:
        fall(message="first, password=hunter2")
    except ValueError as error:
        raise OSError("second") from error


def test_it_names_files_lines_and_functions_and_shows_no_source() -> None:  # E42
    text = text_of(lambda: fall(1))
    line = fall.__code__.co_firstlineno
    assert text.splitlines()[0] == "Traceback (most recent call last):"
    assert f'  File "{HERE}", line {line + 3}, in fall' in text
    assert f'  File "{HERE}", line {line + 4}, in fall' in text
    assert text.splitlines()[-1] == "ValueError"
    assert "hunter2" not in text
    assert "raise" not in text


def test_no_source_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("source was read")

    monkeypatch.setattr(linecache, "getline", refuse)
    monkeypatch.setattr(linecache, "updatecache", refuse)
    assert "in chained" in text_of(chained)


def test_causes_come_first_and_their_messages_lose_their_secrets() -> None:  # E42 E63
    text = text_of(chained)
    first, _, second = text.partition("direct cause of the following exception")
    assert f"ValueError: first, password={HIDDEN}" in first
    assert "in fall" in first
    assert "in chained" in second
    assert "hunter2" not in text


def test_what_was_raised_while_handling_is_told_unless_it_is_suppressed() -> None:
    def while_handling() -> None:
        try:
            fall()
        except ValueError:
            raise OSError("second")  # noqa: B904

    def suppressed() -> None:
        try:
            fall()
        except ValueError:
            raise OSError("second") from None

    assert "During handling of the above exception" in text_of(while_handling)
    assert "ValueError" not in text_of(suppressed)


def test_groups_tell_their_members() -> None:  # E42
    def both() -> None:
        raise ExceptionGroup("both", [caught(fall), caught(chained)])

    text = text_of(both)
    assert "  Sub-exception 1 of 2:" in text
    assert "    ValueError: broken" in text
    assert "    OSError: second" in text
    assert text.splitlines()[-1] == "ExceptionGroup"


def test_a_group_of_many_tells_a_few_and_how_many_there_were() -> None:
    def many() -> None:
        raise ExceptionGroup("many", [ValueError(str(number)) for number in range(1000)])

    text = text_of(many)
    assert "Sub-exception 5 of 1000:" in text
    assert "Sub-exception 6" not in text


def test_causes_in_a_circle_have_an_end() -> None:
    first, second = caught(fall), caught(chained)
    first.__cause__, second.__cause__ = second, first
    assert render(raised_of(first)).count("ValueError") == 1


def test_middle_frames_give_way() -> None:
    text = text_of(lambda: fall(900))
    assert len(text.encode()) <= MOST_BYTES
    assert "frames left out" in text
    assert f"line {fall.__code__.co_firstlineno + 4}, in fall" in text.splitlines()[-2]


def test_no_traceback_is_larger_than_its_bound() -> None:
    def long(number: int) -> None:
        name, names = "\u00fc" * 190, dict[str, Callable[[], None]]()
        source = f"def {name}():\n raise KeyError('{name * 2}')"
        exec(compile(source, "x" * 190, "exec"), names)
        try:
            if number:
                long(number - 1)
            names[name]()
        except Exception as error:
            raise OSError("y" * 4000) from error

    text = text_of(lambda: long(30))
    assert len(text.encode()) <= MOST_BYTES
    assert text.splitlines()[-1] == "OSError"


def test_half_a_secret_at_the_cut_of_a_long_message_is_not_shown() -> None:  # E63
    def long() -> None:
        try:
            fall(message="x" * 490 + " " + "y" * 1490 + " token=hunter2hunter2hunter2hunter2hunter2")
        except ValueError as error:
            raise OSError from error

    assert "hunter" not in text_of(long)


def test_jobs_that_fail_at_one_place_share_a_traceback_whatever_they_say() -> None:
    one, other = (Traceback.of(raised_of(caught(partial(fall, message=text)))) for text in ("7", "8"))
    assert one.key == other.key
    assert one.with_message("ValueError: 7").endswith("\nValueError: 7")
    assert one.with_message("TIMEOUT: ValueError: 7").endswith("\nValueError")
    assert Traceback.of(raised_of(caught(lambda: fall(1)))).key != one.key


def test_an_equal_failure_is_the_same_object_so_that_a_group_writes_it_once() -> None:
    failures = [traced(Failure.of("UNKNOWN"), error) for error in (caught(fall), caught(fall))]
    assert failures[0] is failures[1]
    assert failures[0].traceback is not None


def test_an_exception_without_frames_has_no_traceback() -> None:
    assert traced(Failure.of("UNKNOWN"), ValueError("x")).traceback is None


def test_an_exception_from_another_process_keeps_what_was_observed_there() -> None:
    there = raised_of(caught(chained))
    arrived = OSError("second")
    carry(arrived, there)
    assert getattr(arrived, REMOTE) is there
    assert raised_of(arrived) == there

    def wrapped() -> None:
        raise RuntimeError("in a middleware") from arrived

    assert "in fall" in text_of(wrapped)


def test_words_cannot_break_out_of_their_line() -> None:  # E63
    class Evil(Exception):
        def __str__(self) -> str:
            return "one\x1b[31m\ntwo\0\ud800"

    def evil() -> None:
        raise OSError("x") from Evil()

    text = text_of(evil)
    assert "Evil: one\\x1b[31m two\\x00\\ud800" in text
    assert text.encode()


def test_an_exception_without_words_is_told_by_its_type() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert observe(Silent(), str, str) == Raised(
        f"{Silent.__module__}.{Silent.__qualname__}", "(its text cannot be read)"
    )


def test_files_are_named_without_the_folders_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    monkeypatch.setattr("sys.path", ["/srv/code", "/srv"])
    assert file_name("/any/lib/python3.12/site-packages/mail/smtp.py") == "mail/smtp.py"
    assert file_name("/srv/code/shop/tasks.py") == "shop/tasks.py"
    assert file_name("/home/ann/secret/x.py") == "x.py"
    assert file_name("<string>") == "<string>"
    assert file_name(__file__) == HERE
    monkeypatch.undo()
    file_name.cache_clear()
    assert file_name(json.__file__) == "json/__init__.py"
