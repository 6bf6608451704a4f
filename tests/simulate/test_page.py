"""The page about outages says what the games make of it, and the games are those that the code plays today."""

from __future__ import annotations

from dataclasses import asdict
from xml.etree import ElementTree

import pytest

from holdfast.simulate.figures import Figures
from holdfast.simulate.plot import draw
from holdfast.simulate.scenarios import SCENARIOS
from tools import outages


def kept(scenario: str, policy: str) -> Figures:
    [found] = [game for game in outages.load() if (game.scenario, game.policy) == (scenario, policy)]
    return found


def test_the_page_and_the_picture_are_what_the_kept_games_make() -> None:  # E75
    games = outages.load()
    assert outages.PAGE.read_text(encoding="utf-8") == outages.page(games), f"run {outages.COMMAND}"
    assert outages.PICTURE.read_text(encoding="utf-8") == outages.picture(games), f"run {outages.COMMAND}"
    assert [(game.scenario, game.policy) for game in games] == [
        (scenario.name, play.name) for scenario, play in outages.GAMES
    ]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_kept_game_is_the_one_that_the_code_plays_today(scenario: str) -> None:  # E75
    """With everything on, all the code takes part."""
    [(model, play)] = [
        (model, play) for model, play in outages.GAMES if (model.name, play.name) == (scenario, "everything")
    ]
    assert asdict(outages.play(model, play)) == asdict(kept(scenario, "everything")), f"run {outages.COMMAND}"


@pytest.mark.parametrize("scenario", ["outage", "brown-out"])
def test_the_figures_that_are_promised_are_reached(scenario: str) -> None:  # E22, E23, E75
    game = kept(scenario, "everything")
    assert game.share_done >= 0.99
    assert game.calls_per_job is not None
    assert game.calls_per_job <= 1.1
    assert game.burnt == 0
    beside = kept(scenario, "backoff")
    assert beside.share_done < 0.1
    assert kept(scenario, "failures").share_done < 0.9  # latency has to be looked at
    assert kept(scenario, "bulkhead").share_done >= 0.99


def test_the_picture_is_sound_and_small() -> None:  # E75
    text = outages.PICTURE.read_text(encoding="utf-8")
    assert len(text) <= 200_000
    root = ElementTree.fromstring(text)
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 10


def test_a_picture_of_nothing_is_still_a_picture() -> None:  # E75
    ElementTree.fromstring(draw([], SCENARIOS))
