"""The registry of error codes, and failures made from it."""

from __future__ import annotations

import pytest

from holdfast.errors import UsageError
from holdfast.jobs import codes
from holdfast.jobs.codes import ErrorClass, ErrorCode, all_codes, lookup, register
from holdfast.jobs.verdict import Failure
from holdfast.resilience.classify import classify


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten with it."""
    monkeypatch.setattr(codes, "_CODES", dict(codes._CODES))


def test_a_code_is_found_by_its_name() -> None:  # E14
    made = register("NOT_PDF", ErrorClass.PERMANENT, 400, "This is not a PDF.")
    assert lookup("NOT_PDF") == made == ErrorCode("NOT_PDF", ErrorClass.PERMANENT, 400, "This is not a PDF.")
    assert made in all_codes()


def test_the_same_code_may_be_registered_again_but_not_with_another_meaning() -> None:  # E14
    register("X", ErrorClass.TRANSIENT, 503, "One.")
    register("X", ErrorClass.TRANSIENT, 503, "One.")
    with pytest.raises(UsageError, match="X is registered already"):
        register("X", ErrorClass.PERMANENT, 503, "One.")
    with pytest.raises(UsageError, match="another meaning"):
        register("UNKNOWN", ErrorClass.PERMANENT, 500, "Never again.")
    assert lookup("X").error_class is ErrorClass.TRANSIENT


def test_an_unknown_code_is_an_unknown_error_with_its_own_name() -> None:  # E14
    code = lookup("NOBODY_KNOWS")
    assert (code.name, code.error_class, code.status) == ("NOBODY_KNOWS", ErrorClass.UNKNOWN, 500)
    assert code.message == lookup("UNKNOWN").message
    assert "NOBODY_KNOWS" not in {known.name for known in all_codes()}


def test_every_code_has_a_status_and_one_line_for_people() -> None:  # E14
    for code in all_codes():
        assert code.name == code.name.upper()
        assert 400 <= code.status <= 599
        assert code.message.endswith(".")
        assert "\n" not in code.message
    names = [code.name for code in all_codes()]
    assert names == sorted(set(names))


def test_a_failure_of_the_engine_has_the_registered_words() -> None:  # E14
    failure = Failure.of("WORKER_LOST", "worker w-1 was lost")
    assert failure.message == lookup("WORKER_LOST").message
    assert failure.detail == "worker w-1 was lost"


def test_a_failure_ended_for_another_reason_keeps_the_first_one_readable() -> None:  # E14 E15
    first = Failure("BOOM", "Boom.", detail="RuntimeError: boom", fingerprint="cafe", gateway_status=503)
    ended = first.with_code("TIMEOUT")
    assert (ended.code, ended.message) == ("TIMEOUT", lookup("TIMEOUT").message)
    assert ended.detail == "BOOM: RuntimeError: boom"
    assert (ended.fingerprint, ended.gateway_status) == ("cafe", 503)
    assert Failure("BOOM", "Boom.").with_code("TIMEOUT").detail == "BOOM: Boom."


def test_the_codes_of_an_app_are_its_own() -> None:  # E14
    declared: dict[str, ErrorCode] = {}
    codes.declare(declared, "GW_5XX", "The gateway is down.", "transient")
    codes.declare(declared, "GW_5XX", "The gateway is down.", "transient")  # said twice
    assert Failure.of("GW_5XX", "HTTP 502", declared).message == "The gateway is down."
    assert lookup("GW_5XX").message == lookup("UNKNOWN").message  # another app's is not changed
    with pytest.raises(UsageError, match="GW_5XX is declared already"):
        codes.declare(declared, "GW_5XX", "Another meaning.", "transient")
    with pytest.raises(UsageError, match="TIMEOUT is a code of the engine"):
        codes.declare(declared, "TIMEOUT", "Too slow.", "transient")
    with pytest.raises(UsageError, match="it is one of transient, throttled, permanent, unknown"):
        codes.declare(declared, "OTHER", "Other.", "sometimes")


def test_a_rule_that_names_a_declared_code_has_its_words_and_class() -> None:  # E13
    declared: dict[str, ErrorCode] = {}
    codes.declare(declared, "BAD_MAPPING", "There is no such mapping.", "permanent")
    failure = classify(KeyError("docx"), rules=(lambda _: "BAD_MAPPING",), codes=declared)
    assert (failure.message, failure.error_class) == ("There is no such mapping.", ErrorClass.PERMANENT)
