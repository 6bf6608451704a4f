"""Simulate the outages and write docs/explanation/outages.md: `python tools/outages.py`.

This takes a minute. The figures are stored in docs/explanation/outages.json. With `--check` nothing is
simulated or written, and a page or a picture that differs from the stored figures is an error; a test
simulates some of them again and compares.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import msgspec

from holdfast.resilience.breaker import BreakerPolicy
from holdfast.resilience.guard import DependencyPolicy
from holdfast.simulate.figures import Figures
from holdfast.simulate.plot import draw
from holdfast.simulate.policies import BACKOFF, DEFAULT_POLICIES, EVERYTHING, POLICIES, SimulatedPolicy
from holdfast.simulate.scenarios import BROWN_OUT, OUTAGE, SCENARIOS, Scenario
from holdfast.simulate.world import simulate

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "explanation"
PAGE, PICTURE, KEPT = FOLDER / "outages.md", FOLDER / "outages.svg", FOLDER / "outages.json"
COMMAND = "python tools/outages.py"
SEED = 1

MAIN = (OUTAGE, BROWN_OUT)
OTHERS = tuple(scenario for scenario in SCENARIOS.values() if scenario not in MAIN)
COOLDOWNS = ("30s", "1m", "5m")


def _cooling(longest: str) -> SimulatedPolicy:
    policy = DependencyPolicy(breaker=BreakerPolicy(max_cooldown=longest))
    return replace(EVERYTHING, name=f"max_cooldown={longest}", dependency=policy)


#: All games of the page, in its order.
GAMES: tuple[tuple[Scenario, SimulatedPolicy], ...] = (
    *((scenario, play) for scenario in MAIN for play in POLICIES.values()),
    *((scenario, play) for scenario in OTHERS for play in (BACKOFF, EVERYTHING)),
    *((OUTAGE, _cooling(longest)) for longest in COOLDOWNS),
)


def play(scenario: Scenario, policy: SimulatedPolicy) -> Figures:
    """Simulate one game."""
    return simulate(scenario, policy, random.Random(SEED))


def load() -> list[Figures]:
    """Read the stored figures."""
    return msgspec.json.decode(KEPT.read_bytes(), type=list[Figures])


def picture(games: Sequence[Figures]) -> str:
    """Return the page's picture as SVG."""
    names = {scenario.name for scenario in MAIN}
    return draw(
        [game for game in games if game.scenario in names and game.policy in DEFAULT_POLICIES], SCENARIOS
    )


def page(games: Sequence[Figures]) -> str:
    """Return the page."""

    def of(scenario: Scenario, policies: Iterable[str]) -> list[Figures]:
        wanted = list(policies)
        return [game for game in games if game.scenario == scenario.name and game.policy in wanted]

    outage = {game.policy: game for game in of(OUTAGE, POLICIES)}
    backoff, everything = outage["backoff"], outage["everything"]
    others = [game for scenario in OTHERS for game in of(scenario, ("backoff", "everything"))]
    cooling = of(OUTAGE, (f"max_cooldown={longest}" for longest in COOLDOWNS))
    return f"""# Outages

<!-- Made by `{COMMAND}`. Change that, or the code that it plays, not this page. -->

A service that your jobs call goes down for five minutes. What happens in the hour after depends on the queue. With retries,
backoff and jitter alone the service stays down. In the simulation below {_share(backoff)} of the jobs complete, at
{_per_job(backoff)} calls each, and the trouble does not end when the outage ends. With the defaults of Holdfast {_share(everything)}
complete, at {_per_job(everything)} calls each, and no one has to intervene.

{_table(of(OUTAGE, POLICIES), title=OUTAGE.about)}

{_table(of(BROWN_OUT, POLICIES), title=BROWN_OUT.about)}

![Calls and finished jobs over time, for each policy](outages.svg)

Grey shows the calls to the service, the line shows finished jobs, and the red shade shows the trouble. *Wasted* calls are calls
that finished no job. Each used up an attempt, unless it was a trial. *Drained* is the time from the end of the trouble until the
backlog was gone. Holding and postponing jobs used up {_burnt(games)} in any of these simulations: a held job is not touched, and a
postponed job gets its attempt back. The jobs missing to 100 % were running when the simulation ended.

## Why the service does not recover by itself

The service can handle 100 calls a second and is asked for 60, so it has spare capacity. But the workers can have 600 calls under
way at once. Each call then waits six seconds in the service's queue, and every caller gives up after five. The service works
through calls whose callers have gone, and every one of them is sent again. It is fully busy and completes nothing.

Nothing is broken any more. The load sustains itself. Backoff makes the calls come later, not fewer: there are always enough retries
that are due. A breaker alone protects the service but does not help the jobs. Calls accumulate while it is open, and each time
it closes they overload the service again.

## What each part does

**The limit** (`LimiterPolicy`) keeps a recovered service up. Each worker has its own limit on concurrent calls to a service. It
begins at 20 and grows by a tenth a second while it is reached and the service is healthy. It shrinks when more than a tenth of the
calls fail, when answers take more than twice as long as they do at rest, or when the service asks to be called less often.

The limit learns the latency at rest, and a long overload does not change what it has learned. Latencies that vary widely by
themselves do not shrink it: a difference counts only as far as it is statistically certain. The limit stays in force when the
outage is over. A limit that looks only at failures (`failures`) notices an overload five seconds late, at the timeout, and lets the
load in again and again. A fixed number (`bulkhead`) works as well, if it is the right one for this service, these workers and this
day. With the adaptive limit you do not have to know that number.

**The breaker** (`BreakerPolicy`) avoids calls that cannot succeed. Each worker looks at its own last 20 calls. When half of them
failed, it stops at once and votes. Two votes open the breaker for all workers; where there is only one worker, one vote does. The
lane then leaves the claim list, and its jobs stay queued untouched. After the cooldown three jobs are let through as trials. Two
successes close the breaker, two failures open it again. A trial is a lease: a worker that dies during one blocks no other worker,
and a job whose trial failed gets its attempt back.

In the outage the breaker wastes {_wasted(everything)} calls, where the limit and the budget alone waste {_wasted(outage["limiter"])}. Its
price is the wait for the next trial after the service is back. A single worker that cannot reach the service stops only itself.

**The ramp** is the limit again. When the breaker closes, all workers together begin with five concurrent calls, and the limit
grows by latency. At no moment is the whole backlog released at once.

**The budget** (`BudgetPolicy`) prevents retries from crowding out first attempts. A retry costs 14 tokens of 500 and gets them back
if it succeeds. A success at the first attempt adds one token. Retries are therefore free while they help. A retry that the budget
cannot pay is postponed. The last fifth is reserved for retries of jobs with a high priority, or with less than an hour to their
deadline. The budget is the second line of defense: without limit and breaker it alone brings {_share(outage["budget"])} of the jobs
through the outage, where backoff brings {_share(backoff)}.

**Backoff** still spreads the retries of single jobs. **Retry-After** holds the whole lane, not only the job that received it.

## Other troubles

{_others(others)}

*Done* is a share of the jobs that can be done at all. Under throttling with backoff alone some jobs are given up, because refusals
use up their 25 attempts.

## How long to stay open

With a `max_cooldown` above the `cooldown`, each failed trial doubles the time the breaker stays open, up to that limit. This saves
a few trial calls and costs minutes after the service is back:

{_table(cooling, title=f"everything, {OUTAGE.about}", explained=False)}

Therefore there is no `max_cooldown` unless you set one. Set one where a trial is expensive, or give the dependency a health check.

## Play it yourself

```shell
holdfast simulate                                       # these two, the policies of the picture, about 20 seconds
holdfast simulate --scenario all --policy everything
holdfast simulate --scenario flapping --seed 7 --plot flapping.svg --json
holdfast simulate --recorded --app shop:app             # the last outages of your own services
{COMMAND:55} # this page
```

A recorded outage lasts from the moment a breaker opened by itself until it closed, so it may be longer than the real one by up to a
cooldown. An outage of more than an hour is cut. How the service failed is not recorded, so it is simulated as a service that hangs.

The decisions are made by the same code as in production: `holdfast.resilience.breaker`, `limiter`, `budget`, `guard`, `outcome`,
`policy` and `backoff`. Four workers share breaker and votes once a second each, as they do through a database. The same seed
produces the same simulation.

## What the simulation leaves out

Two policies that others use are not simulated, because no code of ours implements them: a budget of a tenth of all arrivals, which
lets a backlog of retries drain slowly after an outage, and a ramp after which there is no limit any more.

There is one service, one lane and one kind of job. There are no owners, priorities or deadlines. Claiming costs nothing and is
immediate. A worker that gives up does not notify the service; most clients do not either. Answers take 50 to 150 ms when the
service is not busy. Real services refuse calls when their queue is long, which helps. Real workers restart at the wrong moment,
which does not.
"""


def _table(games: Sequence[Figures], *, title: str, explained: bool = True) -> str:
    head = ["policy", "done", "calls a job", "wasted", "breaker opened", "drained after"]
    rows = [
        [
            f"**{game.policy}**" if game.policy == "everything" else game.policy,
            _share(game),
            _per_job(game),
            _wasted(game),
            str(game.opened),
            _drained(game),
        ]
        for game in games
    ]
    if explained:
        head.append("what it is")
        rows = [[*row, game.about] for row, game in zip(rows, games, strict=True)]
    return f"{title[0].upper()}{title[1:]}:\n\n{_lines([head, ['---'] * len(head), *rows])}"


def _others(games: Sequence[Figures]) -> str:
    head = ["trouble", "policy", "done", "calls a job", "given up", "drained after"]
    rows = []
    for game in games:
        first = game.policy == "backoff"
        about = f"**{game.scenario}**: {SCENARIOS[game.scenario].about}" if first else ""
        rows.append([about, game.policy, _share(game), _per_job(game), f"{game.gave_up:,}", _drained(game)])
    return _lines([head, ["---"] * len(head), *rows])


def _lines(rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def _share(game: Figures) -> str:
    return f"{game.share_done:.2%}".replace("%", " %")


def _per_job(game: Figures) -> str:
    return (
        "–"
        if game.calls_per_job is None
        else f"{game.calls_per_job:.3g}"
        if game.calls_per_job >= 10
        else f"{game.calls_per_job:.3f}"
    )


def _wasted(game: Figures) -> str:
    return f"{game.calls - game.done:,}"


def _burnt(games: Sequence[Figures]) -> str:
    burnt = sum(game.burnt for game in games)
    return "no attempt" if not burnt else f"{burnt} attempts"


def _drained(game: Figures) -> str:
    return "never" if game.drained is None else f"{game.drained:.0f} s"


def main() -> None:
    if "--check" not in sys.argv:
        games = []
        for scenario, policy in GAMES:
            games.append(play(scenario, policy))
            print(
                f"{scenario.name}, {policy.name}: {_share(games[-1])} done, {_per_job(games[-1])} calls a job"
            )
        KEPT.write_text("[\n" + ",\n".join(json.dumps(asdict(game)) for game in games) + "\n]\n", "utf-8")
    games = load()
    for path, text in ((PAGE, page(games)), (PICTURE, picture(games))):
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path.name} is not current; run: {COMMAND}")


if __name__ == "__main__":
    main()
