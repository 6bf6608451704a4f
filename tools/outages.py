"""Play the outages and write docs/explanation/outages.md with its picture: `python tools/outages.py` (about a minute).

What was played is kept in docs/explanation/outages.json. With `--check` nothing is played or written, and a page or a picture
that is not what the kept games make is an error; a test plays some of them again and compares.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import msgspec

from holdfast.domain.breaker import BreakerPolicy
from holdfast.domain.guard import DependencyPolicy
from holdfast.simulate.figures import Figures
from holdfast.simulate.plot import draw
from holdfast.simulate.policies import BACKOFF, EVERYTHING, PLAYS, USUAL, Play
from holdfast.simulate.scenarios import BROWN_OUT, OUTAGE, SCENARIOS, Scenario
from holdfast.simulate.world import simulate

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "explanation"
PAGE, PICTURE, KEPT = FOLDER / "outages.md", FOLDER / "outages.svg", FOLDER / "outages.json"
COMMAND = "python tools/outages.py"
SEED = 1

MAIN = (OUTAGE, BROWN_OUT)
OTHERS = tuple(scenario for scenario in SCENARIOS.values() if scenario not in MAIN)
COOLDOWNS = ("30s", "1m", "5m")


def _cooling(longest: str) -> Play:
    policy = DependencyPolicy(breaker=BreakerPolicy(max_cooldown=longest))
    return replace(EVERYTHING, name=f"max_cooldown={longest}", dependency=policy)


#: Every game of the page, in the order it is told.
GAMES: tuple[tuple[Scenario, Play], ...] = (
    *((scenario, play) for scenario in MAIN for play in PLAYS.values()),
    *((scenario, play) for scenario in OTHERS for play in (BACKOFF, EVERYTHING)),
    *((OUTAGE, _cooling(longest)) for longest in COOLDOWNS),
)


def play(scenario: Scenario, policy: Play) -> Figures:
    return simulate(scenario, policy, random.Random(SEED))


def load() -> list[Figures]:
    return msgspec.json.decode(KEPT.read_bytes(), type=list[Figures])


def picture(games: Sequence[Figures]) -> str:
    names = {scenario.name for scenario in MAIN}
    return draw([game for game in games if game.scenario in names and game.policy in USUAL], SCENARIOS)


def page(games: Sequence[Figures]) -> str:
    def of(scenario: Scenario, policies: Iterable[str]) -> list[Figures]:
        wanted = list(policies)
        return [game for game in games if game.scenario == scenario.name and game.policy in wanted]

    outage = {game.policy: game for game in of(OUTAGE, PLAYS)}
    backoff, everything = outage["backoff"], outage["everything"]
    others = [game for scenario in OTHERS for game in of(scenario, ("backoff", "everything"))]
    cooling = of(OUTAGE, (f"max_cooldown={longest}" for longest in COOLDOWNS))
    return f"""# Outages

<!-- Made by `{COMMAND}`. Change that, or the code that it plays, not this page. -->

A service that your jobs call goes down for five minutes. What happens in the hour after depends on the queue. With retries,
backoff and jitter alone the answer is: it stays down. In the game below {_share(backoff)} of the jobs get done, each at the price of
{_per_job(backoff)} calls, and it does not end when the outage ends. With what Holdfast does by default {_share(everything)} get done,
at {_per_job(everything)} calls each, and nobody has to be woken.

{_table(of(OUTAGE, PLAYS), title=OUTAGE.about)}

{_table(of(BROWN_OUT, PLAYS), title=BROWN_OUT.about)}

![Calls and finished jobs over time, for each policy](outages.svg)

Grey is what the service is asked for, the line is what gets done, the red shade is the trouble. *Wasted* are
calls that finished no job; each burnt an attempt, unless it was a trial. *Drained* says how long after the end of the trouble the
backlog was gone. Holding and putting off burnt {_burnt(games)} in any of these games: what is held is not touched, and what is put off
gets its attempt back. What is missing to 100 % was under way when the game ended.

## Why it does not come back by itself

The service can do 100 calls a second and is asked for 60: it has room to spare. But the workers could have 600 calls under way
at once. When they do, each waits six seconds in the service's line, and all give up after five. The service then works
through calls that nobody waits for, and every one of them is asked again. It is busy to the limit and gets nothing done.
Nothing is broken any more; the crowd keeps itself alive. Backoff makes the crowd come later, not smaller: there are always enough whose
time has come. A breaker alone spares the service and does not help the jobs: it gathers the crowd behind a door, and each time the
door is opened the crowd knocks the service over again.

## What each part does

**The limit** (`LimiterPolicy`) is what keeps a recovered service up. Each worker has a limit of its own on calls under way to a
service. It begins at 20 and grows by a tenth a second while it is reached and all is well. It shrinks when more than a tenth of
the calls fail, when answers take more than twice as long as they do at rest, or when the service asks to be called less often.
What "at rest" is, it learns, and does not let a long overload teach it. Latencies that vary widely by themselves are no reason: a
difference counts only as far as it is certain. The limit stays when the outage is over. A limit that looks at failures only (`failures`)
hears of an overload five seconds late, at the timeout, and lets the crowd in again and again. A fixed number (`bulkhead`) holds as
well, if it is the right one for this service, this fleet and this day; nobody has to know it here.

**The breaker** (`BreakerPolicy`) saves the calls that cannot succeed. Each worker looks at its own last 20 calls; when half of
them failed, it stops at once and votes. Two votes, or one where there is only one worker, open the breaker for all: the lane leaves the
claim list, and its jobs wait in line untouched. After the cooldown three jobs are let through as trials; two
successes close it, two failures open it again. A trial is a lease: a worker that dies with one blocks nobody, and a
job whose trial failed gets its attempt back. In the outage it wastes {_wasted(everything)} calls where the limit and the budget alone waste
{_wasted(outage["limiter"])}; its price is the wait for the next trial after the service is back. One worker alone that cannot reach the service stops itself, and not the others.

**The ramp** is the limit again: when the breaker closes, the whole fleet begins with five calls at once and finds its way up by
latency. There is no moment at which everything is let go.

**The budget** (`BudgetPolicy`) keeps retries from crowding out first tries. A retry costs 14 tokens of 500 and gets them back if it
succeeds; a success at the first try brings one. So retries are free while they help. One that cannot be paid is put off. The last
fifth is kept for retries of jobs with a high priority or less than an hour from their deadline. It is the
second line: without limit and breaker it alone brings {_share(outage["budget"])} of the jobs through the outage, where backoff brings {_share(backoff)}.

**Backoff** remains what spreads the retries of single jobs, and **Retry-After** holds the whole lane, not only the job that was
answered.

## Other troubles

{_others(others)}

Done is counted among the jobs that can be done at all. Under throttling with backoff alone some are given up: their
25 attempts are used up on refusals.

## How long to stay open

With a `max_cooldown` above the `cooldown`, a breaker that was opened in vain stays open twice as long, up to that. That saves a few
trial calls and costs minutes after the service is back:

{_table(cooling, title=f"everything, {OUTAGE.about}", explained=False)}

So there is none unless you set it: set one where a trial is dear, or give the dependency a health check.

## Play it yourself

```shell
holdfast simulate                                       # these two, the policies of the picture, about 20 seconds
holdfast simulate --scenario all --policy everything
holdfast simulate --scenario flapping --seed 7 --plot flapping.svg --json
holdfast simulate --recorded --app shop:app             # the last outages of your own services
{COMMAND:55} # this page
```

An outage on record lasts from the moment a breaker opened by itself until it closed, so up to a cooldown longer than the service was
down; one of more than an hour is cut. How the service failed is not on record: it is played as one that hangs.

The decisions are made by the code that makes them in production: `holdfast.domain.breaker`, `limiter`, `budget`, `guard`, `outcome`,
`policy` and `backoff`. Four workers share breaker and votes as through a database, once a second each. The same seed plays the same
game.

## What the game leaves out

Two policies that others use are not played, for there is no code of ours that decides so: a budget of a tenth of all arrivals, which
lets a backlog of retries drain slowly after an outage, and a ramp after which there is no limit any more.

One service, one lane, one kind of job; no owners, no priorities, no deadlines. Claiming costs nothing and is immediate. A worker that
gives up does not tell the service, as most clients do not. Answers take 50 to 150 ms where the service is not busy. Real
services refuse at some length of their line, which helps; real fleets restart at the wrong moment, which does not.
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
