"""`holdfast simulate`: simulate outages with retry policies, using the code that decides in production."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from holdfast.cli.options import PLAIN, AppOption, JsonOption, UrlOption, words
from holdfast.cli.progress import progress_bar
from holdfast.cli.views import print_json
from holdfast.errors import UsageError

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.jobs.job import Event
    from holdfast.simulate.figures import Figures
    from holdfast.simulate.scenarios import Scenario

simulate = typer.Typer(**(PLAIN | {"no_args_is_help": False}))
T = TypeVar("T")

#: The scenarios of the default. The others take as long again.
FIRST = ("outage", "brown-out")
#: How many recorded outages are simulated, and how many events are read at once to find them.
MOST_RECORDED, PAGE = 5, 10_000
HEAD = ["policy", "done", "calls a job", "opened", "put off", "gave up", "drained", "what it is"]


@simulate.command()
def play(
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            "--scenario",
            help='What happens to the service; may be repeated; "all" for all. Default: outage, brown-out.',
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", help='How jobs are retried; may be repeated; "all" for all. Default: five policies.'
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="holdfast.toml", help="Simulate the policies of this file too."),
    ] = None,
    task: Annotated[str | None, typer.Option("--task", help="Only this task of the file.")] = None,
    dependency: Annotated[
        str | None, typer.Option("--dependency", help="Only this dependency of the file.")
    ] = None,
    recorded: Annotated[
        bool,
        typer.Option(
            "--recorded", help="Simulate the last outages that breakers have recorded in a database."
        ),
    ] = False,
    app: AppOption = None,
    url: UrlOption = None,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same result.")] = 1,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.svg", help="Draw a chart into this file.", dir_okay=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate outages with retry policies, and print how many jobs were done and how many calls each took.

    Nothing is called or stored. The ten runs of the default take about ten seconds of CPU; a progress bar shows how far they are.
    """  # fmt: skip
    from holdfast.extension_set import installed_task_options
    from holdfast.simulate.policies import DEFAULT_POLICIES, POLICIES, policies_in
    from holdfast.simulate.scenarios import SCENARIOS
    from holdfast.simulate.world import simulate as run

    scenarios = _chosen("scenario", scenario, SCENARIOS, () if recorded else FIRST)
    if recorded:
        scenarios += _recorded(app, url)
    elif app or url:
        raise UsageError(
            "--app and --url name the database of --recorded outages; add that, or leave them out"
        )
    if file is None and (task or dependency):
        raise UsageError("--task and --dependency choose from a file of policies; name it by --file")
    own = [] if file is None else policies_in(file, task, dependency, installed_task_options())
    plays = [
        *own,
        *_chosen("policy", policy, POLICIES, DEFAULT_POLICIES if not own else ("backoff", "everything")),
    ]
    if plot is not None:
        _check(plot)
    games: list[Figures] = []
    with progress_bar("simulating", len(scenarios) * len(plays)) as progress, _no_collector():
        for one in scenarios:
            for other in plays:
                # A generator for each run, so that it does not depend on the other runs.
                games.append(run(one, other, random.Random(seed)))
                progress(len(games))
    if plot is not None:
        from holdfast.simulate.plot import draw

        _write(plot, draw(games, {one.name: one for one in scenarios}))
    if as_json:
        print_json({"seed": seed, "games": [game.view() for game in games]})
    else:
        _show(games, scenarios)


def _recorded(app: str | None, url: str | None) -> list[Scenario]:
    """Return the last recorded outages, oldest first."""
    from holdfast.cli.apps import ask
    from holdfast.simulate.recorded import outages

    found = outages(ask(app, url, _breaker_events))
    if not found:
        raise UsageError("no outage is on record: no breaker has opened by itself and closed again")
    return [outage.scenario() for outage in found[-MOST_RECORDED:]]


async def _breaker_events(app: Holdfast) -> list[Event]:
    found: list[Event] = []
    after = 0
    while page := await app.events.list(after=after, limit=PAGE):
        found += [event for event in page if event.kind.startswith("breaker_")]
        after = page[-1].id
    return found


@contextmanager
def _no_collector() -> Iterator[None]:
    """Switch the garbage collector off: a run makes millions of small objects and no cycles, and looking for them takes a fifth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _chosen(what: str, names: list[str] | None, known: Mapping[str, T], default: Iterable[str]) -> list[T]:
    from holdfast.values.suggest import suggest

    chosen = words(names) or list(default)
    if "all" in chosen:
        chosen = list(known)
    for name in chosen:
        if name not in known:
            raise UsageError(f"no {what} {name!r}; {suggest(name, known)}")
    return [known[name] for name in dict.fromkeys(chosen)]


def _check(path: Path) -> None:
    """Raise `UsageError` before the runs if the file cannot be written."""
    if path.suffix.lower() != ".svg":
        raise UsageError(f"--plot {path} is not an SVG file; name it {path.with_suffix('.svg')}")
    if not path.parent.is_dir():
        raise UsageError(f"--plot {path}: there is no folder {path.parent}; make it or name another file")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}; name another file") from error


def _show(games: list[Figures], scenarios: list[Scenario]) -> None:
    from holdfast.cli.tables import heading, show_table

    for scenario in scenarios:
        heading(f"{scenario.name}: {scenario.about}")
        show_table(HEAD, [_row(game) for game in games if game.scenario == scenario.name], empty="")


def _row(game: Figures) -> list[str | None]:
    return [
        game.policy,
        f"{game.share_done:.1%}",
        None if game.calls_per_job is None else f"{game.calls_per_job:.2f}",
        str(game.opened),
        f"{game.put_off:,}",
        f"{game.gave_up:,}",
        "never" if game.drained is None else f"after {game.drained:.0f} s",
        game.about,
    ]
