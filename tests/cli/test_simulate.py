"""`holdfast simulate`: choosing, playing, telling and drawing."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from holdfast import Holdfast
from holdfast.cli import main
from holdfast.engine.tables.dependencies import swap_breaker
from holdfast.jobs.lanes import Dependency
from holdfast.jobs.moves import Kind
from holdfast.resilience.breaker import Breaker, BreakerState
from holdfast.simulate import recorded, scenarios

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Games of half a minute."""
    monkeypatch.chdir(tmp_path)
    for name, scenario in scenarios.SCENARIOS.items():
        short = replace(scenario, begins=5, ends=15, seconds=30, arrivals=5)
        monkeypatch.setitem(scenarios.SCENARIOS, name, short)


def test_the_table_names_each_policy_and_what_it_reached(capsys: Capture) -> None:  # E75
    assert main(["simulate"]) == 0
    said = capsys.readouterr().out
    assert "outage: the service hangs" in said
    assert "brown-out: for 120 s" in said
    for policy in ("backoff", "breaker", "budget", "limiter", "everything"):
        assert said.count(f"\n{policy} ") == 2


def test_json_holds_every_figure(capsys: Capture) -> None:  # E75
    assert main(["simulate", "--scenario", "flapping", "--policy", "backoff,everything", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["seed"] == 1
    assert [(game["scenario"], game["policy"]) for game in told["games"]] == [
        ("flapping", "backoff"),
        ("flapping", "everything"),
    ]
    assert {"share_done", "calls_per_job", "calls_per_bin", "burnt"} <= set(told["games"][0])


def test_all_means_all(capsys: Capture) -> None:  # E75
    assert main(["simulate", "--scenario", "all", "--policy", "everything", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [game["scenario"] for game in told["games"]] == list(scenarios.SCENARIOS)


def test_the_seed_decides(capsys: Capture) -> None:  # E75
    said = []
    for seed in ("1", "1", "2"):
        main(["simulate", "--scenario", "outage", "--policy", "everything", "--seed", seed, "--json"])
        said.append(json.loads(capsys.readouterr().out)["games"])
    assert said[0] == said[1] != said[2]


def test_the_plot_is_written(capsys: Capture, tmp_path: Path) -> None:  # E75
    assert main(["simulate", "--policy", "everything", "--plot", "game.svg"]) == 0
    ElementTree.parse(tmp_path / "game.svg")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--scenario", "outtage"], "no scenario 'outtage'; did you mean outage?"),
        (
            ["--policy", "hope"],
            "no policy 'hope'; there are: backoff, breaker, budget, bulkhead, everything, failures, limiter",
        ),
        (["--plot", "game.png"], "--plot game.png is not an SVG file; name it game.svg"),
        (["--plot", "nowhere/game.svg"], "there is no folder nowhere; make it or name another file"),
    ],
)
def test_bad_words_are_answered_in_one_line(args: list[str], told: str, capsys: Capture) -> None:  # E75
    assert main(["simulate", *args]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1


POLICIES = """
[tasks.convert]
max_attempts = 1

[tasks.mail]
max_attempts = 25
backoff = { base = "1s", factor = 2, cap = "5m", jitter = "full" }

[dependencies.gateway]
breaker = false
limiter = false
budget = false
"""


def test_the_policies_of_a_file_are_played_beside_the_known_ones(
    capsys: Capture, tmp_path: Path
) -> None:  # E75
    (tmp_path / "holdfast.toml").write_text(POLICIES)
    assert main(["simulate", "--file", "holdfast.toml", "--scenario", "outage", "--json"]) == 0
    games = {game["policy"]: game for game in json.loads(capsys.readouterr().out)["games"]}
    assert list(games) == ["convert", "mail", "backoff", "everything"]
    # One attempt does not outlive the trouble; twenty-five do.
    assert games["convert"]["gave_up"] > 0 == games["mail"]["gave_up"]
    assert games["mail"]["opened"] == 0


def test_outages_on_record_are_played(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:  # E75
    monkeypatch.setattr(recorded, "OUTAGE", scenarios.SCENARIOS["outage"])
    monkeypatch.setattr(recorded, "AFTERWARDS", 20.0)
    app = Holdfast("sqlite:///jobs.db")

    async def fail_and_recover() -> None:
        async with app:
            store = (await app.runtime.engine()).store
            for version, state in enumerate((BreakerState.OPEN, BreakerState.CLOSED), 1):
                kind = Kind.breaker_opened if version == 1 else Kind.breaker_closed
                breaker = Breaker(state, version)
                await swap_breaker(store, Dependency("gateway"), breaker, holds=False, kind=kind, meta={})

    command = ["simulate", "--recorded", "--url", "sqlite:///jobs.db", "--policy", "everything"]
    asyncio.run(app.migrate())
    assert main(command) == 2
    assert "no outage is on record" in capsys.readouterr().err
    asyncio.run(fail_and_recover())
    assert main([*command, "--plot", "game.svg"]) == 0
    assert "on record: gateway was down for 0 s" in capsys.readouterr().out
    assert main([*command, "--scenario", "outage", "--json"]) == 0
    known, played = (game["scenario"] for game in json.loads(capsys.readouterr().out)["games"])
    assert known == "outage"
    assert played.startswith("gateway 20")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            ["--file", "holdfast.toml", "--task", "convrt"],
            "holdfast.toml has no task 'convrt'; did you mean convert",
        ),
        (["--file", "holdfast.toml", "--dependency", "s3"], "holdfast.toml has no dependency 's3'"),
        (["--url", "sqlite:///jobs.db"], "--app and --url name the database of --recorded outages"),
        (["--task", "convert"], "--task and --dependency choose from a file of policies; name it by --file"),
    ],
)
def test_a_file_that_does_not_fit_is_told_in_one_line(
    capsys: Capture, tmp_path: Path, given: list[str], told: str
) -> None:  # E75
    (tmp_path / "holdfast.toml").write_text(POLICIES)
    assert main(["simulate", *given]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
