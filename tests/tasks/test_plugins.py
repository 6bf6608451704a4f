"""Plug-ins by entry point: the example package, really built and installed, and plug-ins that misbehave."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from holdfast import Fatal, Holdfast, JobFailed, Retry, Retryable, UsageError
from holdfast.jobs.codes import ErrorClass
from holdfast.jobs.job import Lane
from holdfast.plugins import Admit, GateRequest, Hold
from holdfast.resilience.classify import classify
from holdfast.tasks import plugins
from holdfast.tasks.policy_file.reading import loads
from holdfast.tasks.policy_file.values import apply
from holdfast.tasks.task import Policy
from holdfast.testing import app_in_memory, drain
from tests.plugin_packages import acme, forgotten, installed_package, wheel  # noqa: F401 - fixtures

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Heard(list[dict[str, Any]]):
    """What is logged, instead of logging it."""

    def warning(self, event: str, **facts: Any) -> None:
        self.append({"event": event, **facts})


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    heard = Heard()
    monkeypatch.setattr(plugins, "log", heard)
    return heard


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package whose plug-ins do everything they should not."""
    (tmp_path / "broken_plugins.py").write_text(BROKEN)
    (tmp_path / "broken_import.py").write_text("import a_module_that_is_not_there\n")
    yield from installed_package(tmp_path, monkeypatch, "broken_plugins", ENTRY_POINTS)


BROKEN = """
import sys
calls = []
class Mute(Exception):
    def __str__(self): raise RuntimeError("no words")
def raises(question): calls.append(question); raise KeyError("oops")
def by_turns(question): calls.append(question); raise (KeyError if len(calls) % 2 else OSError)("oops")
def nonsense(question): return object()
def leaves(question): sys.exit(3)
def mute(question): raise Mute
number = 42
"""
ENTRY_POINTS = "".join(
    f"[holdfast.{kind}]\n"
    + "".join(f"{name} = broken_plugins:{name}\n" for name in ("raises", "by_turns", "nonsense", "leaves", "mute", "number"))
    + "missing = broken_import:anything\nlost = broken_plugins:not_there\n"
    for kind in ("classifiers", "backoffs", "gates")
)  # fmt: skip
MISBEHAVING = ["raises", "by_turns", "nonsense", "leaves", "mute", "number", "missing", "lost"]


def asking(queue: str = "bulk", now: datetime = NOON) -> GateRequest:
    return GateRequest(lane=Lane(queue, "t"), now=now)


# -- the example ------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("acme")
def test_the_plugins_of_an_installed_package_are_found_by_name_and_loaded_late(heard: Heard) -> None:  # E19
    assert set(plugins.installed("classifier")) >= {"acme"}
    fibonacci = plugins.backoff("fibonacci")
    assert "acme_holdfast.backoff" not in sys.modules
    assert [fibonacci(attempt).total_seconds() for attempt in range(1, 8)] == [5, 5, 10, 15, 25, 40, 65]
    assert "acme_holdfast.gate" not in sys.modules
    assert heard == []


@pytest.mark.usefixtures("acme")
def test_a_backoff_is_named_in_the_file(heard: Heard) -> None:  # E19 E10
    text = """
    [queues.q]
    backoff = { plugin = "plugin:fibonacci", jitter = "none", cap = "20s" }
    [tasks.b]
    backoff = "plugin:fibonacci"
    """
    declared = Policy(queue="q", retry=Retry(9, jitter="full"))
    found = apply(loads(text), {"a": declared, "b": declared})
    delays = [found["a"].retry.backoff.delay(n, 0.5).total_seconds() for n in range(1, 7)]
    assert delays == [5, 5, 10, 15, 20, 20]
    assert found["b"].retry.backoff.cap == timedelta(seconds=20)  # the queue's


@pytest.mark.usefixtures("acme")
def test_a_classifier_is_asked_before_the_built_in_classification(heard: Heard) -> None:  # E19 E13
    from acme_holdfast.classifier import AcmeError  # type: ignore[import-not-found]

    def said(reason: str, **given: Any) -> tuple[str, ErrorClass, timedelta | None, str]:
        failure = classify(AcmeError(reason), rules=(*given.pop("rules", ()), plugins.classifier("acme")))
        assert failure.detail == f"AcmeError: Acme answered: {reason}"
        return failure.code, failure.error_class, failure.retry_after, failure.message

    unknown = classify(AcmeError("hm")).message
    permanent, transient = ErrorClass.PERMANENT, ErrorClass.TRANSIENT
    assert said("month is closed") == ("ACME_MONTH_CLOSED", permanent, None, "Acme has closed this month.")
    assert said("nightly import") == (
        "ACME_IMPORT",
        transient,
        timedelta(hours=3),
        "Acme imports until morning.",
    )
    assert said("busy")[:2] == ("THROTTLED", ErrorClass.THROTTLED)
    assert said("hm") == ("UNKNOWN", ErrorClass.UNKNOWN, None, unknown)
    assert said("month is closed", rules=[lambda error: "NETWORK"])[0] == "NETWORK"  # a task's own rule wins
    assert classify(ValueError("x"), rules=(plugins.classifier("acme"),)) == classify(ValueError("x"))


@pytest.mark.usefixtures("acme")
def test_what_a_handler_raises_on_purpose_is_its_last_word(heard: Heard) -> None:  # E13
    rules = (lambda error: Retryable("again", after="1m"),)
    failure = classify(Fatal("done", code="DONE"), rules=rules)
    assert (failure.code, failure.error_class, failure.retry_after) == ("DONE", ErrorClass.PERMANENT, None)
    failure = classify(Retryable("later"), rules=(lambda error: Fatal("never"),))
    assert (failure.code, failure.error_class) == ("RETRYABLE", ErrorClass.TRANSIENT)


@pytest.mark.usefixtures("acme")
def test_a_gate_answers_for_a_lane(heard: Heard) -> None:  # E19
    [(name, gate)] = loads('[plugins]\ngates = ["quiet-hours"]').gates
    assert name == "quiet-hours"
    assert gate(asking("other")) == Admit()
    assert gate(asking(now=NOON.replace(hour=21))) == Admit()
    assert gate(asking()) == Hold(NOON.replace(hour=20), "bulk work waits until 20:00 UTC")


@pytest.mark.anyio
@pytest.mark.usefixtures("acme")
async def test_a_classifier_of_the_file_judges_the_jobs_of_all_tasks(
    tmp_path: Path, heard: Heard
) -> None:  # E19
    from acme_holdfast.classifier import AcmeError

    file = tmp_path / "policies.toml"
    file.write_text('[plugins]\nclassifiers = ["acme"]\n[tasks.other]\nclassifiers = []')
    app = Holdfast("memory://", policies=file)

    @app.task
    async def sync() -> None:
        raise AcmeError("month is closed")

    @app.task(retry=1)
    async def other() -> None:
        raise AcmeError("month is closed")

    with app_in_memory(app):
        job, left_alone = await sync.enqueue(), await other.enqueue()
        done = await drain(app)
        assert done.attempts == 2
        with pytest.raises(JobFailed, match=r"ACME_MONTH_CLOSED: Acme has closed this month\."):
            await job.result()
        with pytest.raises(JobFailed, match="UNKNOWN"):
            await left_alone.result()


# -- those that misbehave ---------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("name", MISBEHAVING)
def test_a_plugin_that_misbehaves_is_named_once_and_the_default_is_used(
    name: str, heard: Heard
) -> None:  # E19
    boom = ConnectionError("down")
    for _ in range(3):
        assert classify(boom, rules=(plugins.classifier(name),)) == classify(boom)
    for _ in range(3):
        assert [plugins.backoff(name)(n).total_seconds() for n in (1, 2, 3)] == [5, 10, 20]
    for _ in range(3):
        assert plugins.gate(name)(asking()) == Admit()
    kinds = 2 if name == "by_turns" else 1
    assert sorted(line["kind"] for line in heard) == sorted(["classifier", "backoff", "gate"] * kinds)
    for line in heard:
        assert line["event"] == "plugin.failed"
        assert line["plugin"] == name
        assert line["package"] == "broken_plugins"
        assert line["when"] == ("loading" if name in ("missing", "lost", "number") else "in use")
        assert line["reason"]


@pytest.mark.usefixtures("broken")
def test_a_plugin_that_cannot_be_loaded_is_not_loaded_again_for_every_job(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:  # E19
    loaded: list[str] = []
    rule = plugins.classifier("missing")
    load = EntryPoint.load

    def counted(entry: EntryPoint) -> Any:
        loaded.append(entry.name)
        return load(entry)

    monkeypatch.setattr(EntryPoint, "load", counted)
    assert [rule(ValueError()) for _ in range(5)] == [None] * 5
    assert loaded == ["missing"]


@pytest.mark.anyio
@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("name", MISBEHAVING)
async def test_no_job_is_lost_to_a_plugin(name: str, tmp_path: Path, heard: Heard) -> None:  # E19
    file = tmp_path / "policies.toml"
    file.write_text(f'[plugins]\nclassifiers = ["{name}"]\n[tasks.t]\nbackoff = "plugin:{name}"')
    app = Holdfast("memory://", policies=file)
    calls: list[int] = []

    @app.task(retry=Retry(3))
    async def t() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError("down")
        return "done"

    with app_in_memory(app):
        job = await t.enqueue()
        await drain(app, advance=True)
        assert await job.result() == "done"
    assert {line["kind"] for line in heard} == {"classifier", "backoff"}


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[plugins]\nclassifiers = ["acmee"]', "toml:2: plugins.classifiers: no classifier named 'acmee' is installed; did you mean acme?"),
        ('[plugins]\ngates = ["quiet"]', "toml:2: plugins.gates: no gate named 'quiet' is installed; did you mean quiet-hours?"),
        ('[plugins]\ngate = []', "toml:2: plugins.gate: there is no such key here; did you mean gates?"),
        ('[plugins]\ngates = "quiet-hours"', "toml:2: plugins.gates: it is 'quiet-hours'; it is a list of names"),
        ('[tasks.t]\nbackoff = "plugin:fibo"', "toml:2: tasks.t.backoff: no backoff named 'fibo' is installed; did you mean fibonacci?"),
        ('[tasks.t]\nclassifiers = ["zzz"]', "toml:2: tasks.t.classifiers: no classifier named 'zzz' is installed; there are: acme"),
    ],
)  # fmt: skip
def test_a_plugin_that_is_not_there_is_told_with_the_names_that_are_near(text: str, told: str) -> None:  # E19
    with pytest.raises(UsageError) as refused:
        loads(text)
    assert told in str(refused.value)


def test_where_no_package_brings_one_it_is_said() -> None:  # E19
    with pytest.raises(UsageError, match=r"no installed package provides one \(holdfast.gates\)"):
        plugins.gate("anything")
