"""`holdfast.toml`: what it may say, what it is laid over, and how it is refused."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from inspect import signature
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from holdfast import Holdfast, Limits, Retention, Retry
from holdfast.errors import UsageError
from holdfast.policies import Limit, Window, Windows, fixed
from holdfast.resilience.breaker import BreakerPolicy
from holdfast.resilience.budget import BudgetPolicy
from holdfast.resilience.guard import DependencyPolicy
from holdfast.resilience.limiter import LimiterPolicy
from holdfast.resilience.limits import OwnerPolicy, Quota, Rate
from holdfast.resilience.policy import PRESETS
from holdfast.tasks.policy_file import reloading
from holdfast.tasks.policy_file.reading import load, loads
from holdfast.tasks.policy_file.values import DeclaredGuards, Policies, apply
from holdfast.tasks.task import Policy

ROOT = Path(__file__).resolve().parents[2]


def second(number: float) -> timedelta:
    return timedelta(seconds=number)


def in_force(text: str, task: Policy | None = None) -> Policy:
    """The policy of a task named `t` in the queue `q` under this file."""
    return apply(loads(dedent(text)), {"t": task or Policy(queue="q")})["t"]


def delays(policy: Policy, chance: float = 0.0, number: int = 4) -> list[float]:
    return [policy.retry.backoff.delay(n, chance).total_seconds() for n in range(1, number + 1)]


# -- what it says -----------------------------------------------------------------------------------------------------
def test_the_policies_of_the_screenshots_as_a_file() -> None:  # S10 E10
    policies = load(ROOT / "examples" / "holdfast.toml")
    found = apply(
        policies, {"SCREENSHOT": Policy(queue="browser"), "PDF_GENERATION": Policy(queue="browser")}
    )
    screenshot, pdf = found["SCREENSHOT"], found["PDF_GENERATION"]
    assert screenshot.retry.max_attempts == 6
    assert delays(screenshot, 1.0) == [5, 10, 20, 40]
    assert pdf.retry.max_attempts == 3
    assert delays(pdf, 0.5) == [30, 30, 30, 30]
    assert screenshot.deadline == timedelta(minutes=20)
    assert policies.owner("alice") == OwnerPolicy(
        weight=4, quota="gold", limit=Limit(rate="60/min"), max_attempts=3
    )
    assert policies.priorities == {"high": 8, "normal": 4, "low": 1}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_chosen_by_its_name(name: str) -> None:  # E11
    chosen = in_force(f'[tasks.t]\npreset = "{name}"')
    assert chosen.retry == PRESETS[name]
    assert in_force(f'[queues.q]\npreset = "{name}"') == chosen
    app = Holdfast("memory://")
    task = app.task(name="t", queue="q", retry=name)(lambda: None)
    assert task.policy.retry == PRESETS[name]


def test_the_other_keys_of_a_section_win_over_its_preset() -> None:  # E11
    policy = in_force('[tasks.t]\npreset = "converter"\nmax_attempts = 1')
    assert (policy.retry.max_attempts, policy.retry.attempts_by_code) == (1, {"IO_ERROR": 1})
    policy = in_force('[tasks.t]\nbackoff = { fixed = "3s" }\npreset = "screenshots"')
    assert (policy.retry.max_attempts, delays(policy, 0.5)) == (4, [3, 3, 3, 3])
    policy = in_force('[queues.q]\npreset = "screenshots"\n[tasks.t]\nmax_attempts = 9')
    assert (policy.retry.max_attempts, delays(policy)) == (9, [5, 25, 125, 125])


@pytest.mark.parametrize("name", ['"screenshot"', "3", "[]"])
def test_a_preset_that_is_not_there_is_told_with_those_that_are(name: str) -> None:  # E11
    with pytest.raises(
        UsageError, match=r"holdfast\.toml:2: tasks\.t\.preset: there is no preset .* screenshots$"
    ):
        in_force(f"[tasks.t]\npreset = {name}")
    with pytest.raises(UsageError, match="there is no preset 'x'"):
        Holdfast("memory://").task(retry="x")(lambda: None)


async def test_a_job_has_at_most_the_attempts_of_its_owner(tmp_path: Path) -> None:  # S10 E10
    (tmp_path / "holdfast.toml").write_text("[owners.ann]\nmax_attempts = 2\n")
    app = Holdfast("memory://", policies=tmp_path / "holdfast.toml")

    @app.task(retry=5)
    async def ship() -> None:
        raise ConnectionError

    async with app:
        given: list[dict[str, Any]] = [
            {"owner": "ann"}, {"owner": "bob"}, {},
            {"owner": "ann", "max_attempts": 9}, {"owner": "ann", "max_attempts": 1},
        ]  # fmt: skip
        jobs = [await (await ship.options(**options).enqueue()).job() for options in given]
        assert [job.max_attempts for job in jobs] == [2, 5, 5, 2, 1]
        many = await ship.options(owner="ann").enqueue_many([()])
        assert (await many[0].job()).max_attempts == 2
    with pytest.raises(UsageError, match=r"owners\.ann\.max_attempts: max_attempts is 0"):
        loads("[owners.ann]\nmax_attempts = 0")


def test_every_key_of_a_task() -> None:  # E10 E16 E26 E34
    policy = in_force(
        """
        [tasks.t]
        max_attempts = 7
        backoff = { base = "2s", factor = 3, cap = "1m", jitter = "1s" }
        attempts_by_code = { IO_ERROR = 2, HTTP_5XX = 7 }
        max_elapsed = "2h"
        max_retry_after = "6h"
        timeout = 90
        deadline = "3h"
        start_within = "10m"
        retention = { results = "1d" }
        stuck_after = false
        stuck_action = "retry"
        cost = 2.5
        limits = { concurrency = 8, rate = "100/min", per_owner = { concurrency = 2 }, per_key = { rate = "1/s" } }
        windows = { ramp = "1m", deny = [{ days = "mon-fri", start = 08:00:00, end = "18:00", zone = "Europe/Berlin" }] }
        """
    )
    assert policy == Policy(
        queue="q",
        retry=Retry(
            7,
            backoff=policy.retry.backoff,
            max_elapsed="2h",
            max_retry_after="6h",
            attempts_by_code={"IO_ERROR": 2, "HTTP_5XX": 7},
            windows=policy.retry.windows,
        ),
        timeout=second(90),
        deadline=timedelta(hours=3),
        start_within=timedelta(minutes=10),
        retention=Retention(results=timedelta(days=1)),
        stuck_after=None,
        stuck_action="retry",
        cost=2.5,
        limits=Limits(
            concurrency=8,
            rate=Rate(100, timedelta(minutes=1)),
            per_owner=Limit(concurrency=2),
            per_key=Limit(rate="1/s"),
        ),
    )
    assert delays(policy) == [2, 6, 18, 54]
    assert delays(policy, 0.5) == [2.5, 6.5, 18.5, 54.5]
    window = Window(days="mon-fri", start="08:00", end="18:00", zone="Europe/Berlin")
    assert policy.retry.windows is not None
    assert policy.retry.windows.ramp == timedelta(minutes=1)
    [denied] = policy.retry.windows.deny
    assert denied._opens == window._opens


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        ('{ base = "1s" }', [1, 2, 4, 8]),
        ("{ factor = 3 }", [5, 15, 45, 135]),
        ('{ base = "2s", power = 2 }', [2, 8, 18, 32]),
        ('{ fixed = "9s" }', [9, 9, 9, 9]),
        ('{ table = ["1s", "5s"] }', [1, 5, 5, 5]),
        ('{ cap = "15s" }', [7, 14, 15, 15]),
        ("{}", [7, 14, 28, 56]),
    ],
)
def test_each_kind_of_backoff(backoff: str, expected: list[float]) -> None:  # E10 E11
    declared = Policy(queue="q", retry=Retry(5, base="7s", jitter="none"))
    assert delays(in_force(f"[tasks.t]\nbackoff = {backoff}", declared)) == expected


def test_every_key_of_a_dependency_is_the_keyword_of_the_same_name() -> None:  # E20
    policies = loads(
        dedent("""
        [dependencies.gateway]
        breaker = { window = "60s", threshold = 0.3, strictly_above = true, mode = "fail_fast", fail_code = "DOWN" }
        limiter = { start = 4, most = 40 }
        budget = false
        """)
    )
    assert policies.dependency("gateway") == DependencyPolicy(
        breaker=BreakerPolicy(
            window="60s", threshold=0.3, strictly_above=True, mode="fail_fast", fail_code="DOWN"
        ),
        limiter=LimiterPolicy(start=4, most=40),
        budget=None,
    )
    assert policies.dependency("other") == DependencyPolicy()
    assert policies.dependency("other").budget == BudgetPolicy()


def test_owners_quotas_and_priorities() -> None:  # E18 E25 E26
    policies = loads(
        dedent("""
        [priorities]
        high = 20
        [quotas.default]
        per_day = 10
        [quotas.gold]
        per_month = 1000
        cost_per_day = 2
        manual_retries_per_day = 3
        [owners."acme corp"]
        weight = 0.5
        quota = "gold"
        limits = { rate = "5/10s" }
        """)
    )
    assert policies.priorities == {"high": 20, "normal": 4, "low": 1}
    assert policies.quota_of("acme corp") == Quota(per_month=1000, cost_per_day=2, manual_retries_per_day=3)
    assert policies.quota_of("anybody") == Quota(per_day=10)
    assert policies.owner("acme corp").limit == Limit(rate=Rate(5, second(10)))
    assert Policies().quota_of("anybody") == Quota()


# -- what it is laid over ---------------------------------------------------------------------------------------------
def test_a_task_wins_over_its_queue_and_that_over_the_code() -> None:  # E10
    declared = Policy(
        queue="q",
        retry=Retry(3, base="7s", jitter="none", attempts_by_code={"IO_ERROR": 3}, only=[OSError]),
        timeout=second(30),
        deadline=second(500),
        version=4,
    )
    text = """
    [queues.q]
    max_attempts = 8
    timeout = "40s"
    backoff = { cap = "20s" }
    [queues.other]
    max_attempts = 9
    [tasks.t]
    timeout = "50s"
    """
    policy = in_force(text, declared)
    assert policy.retry.max_attempts == 8
    assert policy.timeout == second(50)
    assert policy.deadline == second(500)
    assert policy.version == 4
    assert policy.retry.only == (OSError,)
    assert delays(policy) == [7, 14, 20, 20]


def test_a_file_may_take_away_what_the_code_says() -> None:  # E10
    windows = Windows(deny=[Window(days="mon")])
    declared = Policy(
        queue="q", retry=Retry(3, max_elapsed="1h", windows=windows), timeout=second(1), deadline=second(2)
    )
    policy = in_force(
        "[tasks.t]\ntimeout = false\ndeadline = false\nmax_elapsed = false\nwindows = false", declared
    )
    assert (policy.timeout, policy.deadline, policy.retry.max_elapsed, policy.retry.windows) == (None,) * 4


def test_fewer_attempts_in_the_file_bound_those_by_code() -> None:  # E10
    declared = Policy(queue="q", retry=Retry(9, attempts_by_code={"IO_ERROR": 5}))
    assert in_force("[tasks.t]\nmax_attempts = 2", declared).retry.attempts_by_code == {"IO_ERROR": 2}


def test_the_limit_of_a_queue_is_the_queues_own_and_no_tasks() -> None:  # E26
    text = "[queues.q]\nlimits = { concurrency = 3 }"
    assert in_force(text).limits is None
    assert loads(text).queue_limits("q") == Limits(concurrency=3)
    assert loads(text).queue_limits("other") is None


def test_limits_that_the_file_leaves_out_are_those_of_the_code() -> None:  # E10 E26
    limits = Limits(concurrency=9, per_owner=Limit(concurrency=2), per_key=Limit(rate="1/s"))
    text = "[tasks.t.limits]\nrate = '5/s'\nper_owner = { rate = '2/s' }"
    assert in_force(text, Policy(queue="q", limits=limits)).limits == Limits(
        concurrency=9, rate="5/s", per_owner=Limit(concurrency=2, rate="2/s"), per_key=Limit(rate="1/s")
    )
    of_queue = loads("[queues.q.limits]\nrate = '5/s'").queue_limits("q", Limits(concurrency=9))
    assert of_queue == Limits(concurrency=9, rate="5/s")
    with pytest.raises(UsageError, match=r"toml:1: tasks.t.limits: per_owner.concurrency is above concurr"):
        in_force("[tasks.t.limits]\nconcurrency = 1", Policy(queue="q", limits=limits))


def test_keys_of_a_dependency_that_the_file_leaves_out_are_those_of_the_code() -> None:  # E10 E20
    declared = DependencyPolicy(
        breaker=BreakerPolicy(cooldown="10s", threshold=0.9), limiter=None, budget=BudgetPolicy(cost=3)
    )
    text = "[dependencies.g]\nbreaker = { cooldown = '1m' }\nlimiter = { start = 3 }"
    assert loads(text).dependency("g", declared) == DependencyPolicy(
        breaker=BreakerPolicy(cooldown="1m", threshold=0.9),
        limiter=LimiterPolicy(start=3),
        budget=BudgetPolicy(cost=3),
    )
    off = loads("[dependencies.g]\nbreaker = false").dependency("g", declared)
    assert off == DependencyPolicy(breaker=None, limiter=None, budget=BudgetPolicy(cost=3))
    assert loads("").dependency("g", declared) == declared


def test_a_dependency_that_contradicts_the_code_is_refused_in_one_line() -> None:  # E20
    policies = loads("[dependencies.g.breaker]\ncooldown = '2m'")
    longest = DependencyPolicy(breaker=BreakerPolicy(cooldown="10s", max_cooldown="1m"))
    with pytest.raises(UsageError, match=r"^holdfast.toml:1: dependencies.g.breaker: max_cooldown is"):
        apply(policies, {}, DeclaredGuards({"g": longest}))


def test_an_empty_file_changes_nothing() -> None:
    declared = Policy(queue="q", retry=Retry(3, backoff=fixed("1s")), limits=Limits(concurrency=2))
    policy = in_force("# nothing", declared)
    assert policy == declared


# -- how it is refused ------------------------------------------------------------------------------------------------
BAD = [
    ("[tasks.t]\nmax_attempts = 'six'", 2, "tasks.t.max_attempts: max_attempts is 'six'; it is a whole number, 1 to 1000"),
    ("[tasks.t]\n\nmax_attempts = 0", 3, "tasks.t.max_attempts: max_attempts is 0"),
    ("[tasks.t]\nmax_attemps = 3", 2, "tasks.t.max_attemps: there is no such key here; did you mean max_attempts?"),
    ("[task.t]\nmax_attempts = 3", 1, "task: there is no such key here; did you mean tasks?"),
    ("zzz = 1", 1, "zzz: there is no such key here; there are: dependencies, owners"),
    ("tasks = 3", 1, "tasks: it is 3; it is a table: [tasks]"),
    ("[tasks]\nt = 3", 2, "tasks.t: it is 3; it is a table: [tasks.t]"),
    ("[tasks.t]\ntimeout = '5 parsecs'", 2, "tasks.t.timeout: '5 parsecs' is not a duration"),
    ("[tasks.t]\ntimeout = true", 2, "tasks.t.timeout: True is not a duration"),
    ("[tasks.t]\ntimeout = 0", 2, "tasks.t.timeout: it is 0; write a longer time, or false for none"),
    ("[tasks.t]\ndeadline = -1", 2, "tasks.t.deadline: -1 is out of range"),
    ("[tasks.t]\nstuck_after = 0", 2, "tasks.t.stuck_after: it is 0; write a longer time, or false for none"),
    ("[tasks.t]\nretention = '7d'", 2, "tasks.t.retention: it is '7d'; it is a table"),
    ("[tasks.t.retention]\njobs = 'long'", 2, "tasks.t.retention.jobs: 'long' is not a duration"),
    ("[tasks.t.retention]\nevents = '7d'", 2, "tasks.t.retention.events: there is no such key here; there are: jobs, results"),
    ("[tasks.t]\nstuck_action = 'kill'", 2, "tasks.t.stuck_action: stuck_action is 'kill'; it is one of report, retry"),
    ("[tasks.t]\ncost = 'dear'", 2, "tasks.t.cost: cost is 'dear'"),
    ("[tasks.t]\nbackoff = 'fast'", 2, "tasks.t.backoff: it is 'fast'; write { base"),
    ("[tasks.t]\nbackoff = 5", 2, "tasks.t.backoff: it is 5; it is a table"),
    ("[tasks.t]\nbackoff = { bass = '5s' }", 2, "tasks.t.backoff.bass: there is no such key here; did you mean base?"),
    ("[tasks.t.backoff]\nfactor = 0.5", 2, "tasks.t.backoff.factor: factor is 0.5; a backoff that shrinks"),
    ("[tasks.t.backoff]\nfactor = 'two'", 2, "tasks.t.backoff.factor: it is 'two'; it is a number"),
    ("[tasks.t.backoff]\nbase = '1s'\nfixed = '5s'", 3, "tasks.t.backoff.fixed: it does not go with base"),
    ("[tasks.t.backoff]\nfactor = 2\npower = 2", 3, "tasks.t.backoff.power: it does not go with factor"),
    ("[tasks.t.backoff]\ntable = []", 2, "tasks.t.backoff.table: it is a list of delays"),
    ("[tasks.t.backoff]\ntable = ['1s', 'x']", 2, "tasks.t.backoff.table: 'x' is not a duration"),
    ("[tasks.t.backoff]\njitter = 'wild'", 2, "tasks.t.backoff.jitter: jitter is 'wild'; write"),
    ("[tasks.t.backoff]\njitter = '200%'", 2, "tasks.t.backoff.jitter: a proportional jitter"),
    ("[tasks.t.backoff]\njitter = []", 2, "tasks.t.backoff.jitter: it is not a jitter"),
    ("[tasks.t]\nattempts_by_code = { IO_ERROR = 0 }", 2, "tasks.t.attempts_by_code.IO_ERROR: IO_ERROR is 0"),
    ("[tasks.t]\nwindows = 'mon'", 2, "tasks.t.windows: it is 'mon'; it is a table"),
    ("[tasks.t.windows]\nallow = 'mon'", 2, "tasks.t.windows.allow: it is 'mon'; it is a list"),
    (
        "[[tasks.t.windows.deny]]\ndays = 'mon'\n[[tasks.t.windows.deny]]\nzone = 'Europe/Berlim'",
        4,
        "tasks.t.windows.deny[1].zone: zone is 'Europe/Berlim', which is not a time zone; did you mean Europe/Berlin",
    ),
    (
        "[tasks.t.windows]\ndeny = [\n  { days = 'mon' },\n  { dayz = 'tue' },\n]",
        4,
        "tasks.t.windows.deny[1].dayz: there is no such key here; did you mean days?",
    ),
    ("[tasks.t.windows]\ndeny = [{ start = '8 am' }]", 2, "tasks.t.windows.deny[0].start: start is '8 am'; it is a time of day"),
    ("[tasks.t.windows]\nramp = 'x'", 2, "tasks.t.windows.ramp: 'x' is not a duration"),
    ("[tasks.t.limits]\nconcurrency = 0", 2, "tasks.t.limits.concurrency: concurrency is 0"),
    ("[tasks.t.limits]\nrate = 'often'", 2, "tasks.t.limits.rate: rate is 'often'; write a count and a time"),
    ("[tasks.t.limits]\nper_user = {}", 2, "tasks.t.limits.per_user: there is no such key here; did you mean per_owner or per_key?"),
    ("[tasks.t]\nclassifiers = 'x'", 2, "tasks.t.classifiers: it is 'x'; it is a list of names"),
    ("[dependencies.g.breaker]\nthreshold = 1.5", 2, "dependencies.g.breaker.threshold: threshold is 1.5; it is a share"),
    ("[dependencies.g.breaker]\ntreshold = 0.5", 2, "dependencies.g.breaker.treshold: there is no such key here; did you mean threshold"),
    ("[dependencies.g.breaker]\ncooldown = 'x'", 2, "dependencies.g.breaker.cooldown: cooldown: 'x' is not a duration"),
    ("[dependencies.g.breaker]\nmode = 'wait'", 2, "dependencies.g.breaker.mode: mode is 'wait'; it is \"hold\""),
    ("[dependencies.g]\nlimiter = true", 2, "dependencies.g.limiter: it is True; it is a table"),
    ("[dependencies.g]\nbreaks = {}", 2, "dependencies.g.breaks: there is no such key here; did you mean breaker?"),
    ("[owners.a]\nlimits = { concurrency = 8 }", 2, "owners.a.limits.concurrency: an owner has a rate over all queues"),
    ("[owners.a]\nweight = 0", 2, "owners.a.weight: weight is 0; it is a number"),
    ("[quotas.gold]\n[owners.a]\nquota = 'gild'", 3, "owners.a.quota: there is no quota 'gild' in this file; did you mean gold?"),
    ("[quotas.gold]\nper_week = 3", 2, "quotas.gold.per_week: there is no such key here; there are: cost_per_day"),
    ("[quotas.gold]\nper_day = 1.5", 2, "quotas.gold.per_day: per_day is 1.5"),
    ("[priorities]\nurgent = 9", 2, "priorities.urgent: there is no such key here; there are: high, low, normal"),
    ("[priorities]\nlow = 0", 2, "priorities.low: the weight is 0"),
    ('[tasks."a.b"]\nx = 1', 2, 'tasks."a.b".x: there is no such key here'),
    ("[tasks.t\nx = 1", 1, "not TOML: "),
    ("[tasks.t]\nx = ", 2, "not TOML: invalid value"),
    ("[tasks.t]\nx = '''", 2, "not TOML: "),
]  # fmt: skip

#: Each part is allowed, both together are not.
CONTRADICTIONS = [
    ("[tasks.t]\nmax_attempts = 1\nbackoff = { base = '1s' }", 3, "tasks.t.backoff: max_attempts is 1, so nothing is retried"),
    ("[tasks.t]\nmax_attempts = 1\nwindows = {}", 3, "tasks.t.windows: max_attempts is 1"),
    ("[tasks.t]\nmax_attempts = 1\nattempts_by_code = { X = 1 }", 3, "tasks.t.attempts_by_code: max_attempts is 1"),
    ("[tasks.t]\nmax_attempts = 2\n[tasks.t.attempts_by_code]\nIO_ERROR = 3", 4, "tasks.t.attempts_by_code.IO_ERROR: it is 3, above max_attempts (2)"),
    ("[tasks.t.backoff]\ncap = '1m'\nbase = '2m'", 3, "tasks.t.backoff.base: it goes above cap (1m); raise cap or lower base"),
    ("[tasks.t.backoff]\ntable = ['1s', '2h']\ncap = '1m'", 2, "tasks.t.backoff.table: it goes above cap (1m)"),
    ("[tasks.t]\ntimeout = '2h'\ndeadline = '1h'", 2, "tasks.t.timeout: it is longer than the deadline (1h)"),
    ("[tasks.t]\nstart_within = '2h'\ndeadline = '1h'", 2, "tasks.t.start_within: it is longer than the deadline"),
    ("[tasks.t.windows]\ndeny = [{}]", 1, "tasks.t.windows: these windows never open"),
    ("[tasks.t.limits]\nconcurrency = 2\nper_owner = { concurrency = 3 }", 3, "tasks.t.limits.per_owner.concurrency: per_owner.concurrency is above concurrency"),
    ("[tasks.t.limits.per_key]\nconcurrency = 1001", 2, "tasks.t.limits.per_key.concurrency: per_key.concurrency is 1001; it is at most 1000"),
    ("[queues.q.limits]\nper_owner = { concurrency = 3 }", 2, "queues.q.limits.per_owner.concurrency: per_owner.concurrency cannot be set on a queue; set it on the task"),
    ("[tasks.t.limits]\nrate = '1/min'\nper_key = { rate = '1/s' }", 3, "tasks.t.limits.per_key.rate: per_key.rate is above rate"),
    ("[quotas.q]\nper_month = 3\nper_day = 9", 3, "quotas.q.per_day: per_day is 9, more than per_month (3)"),
    ("[priorities]\nlow = 9", 2, "priorities.low: normal (4) weighs less than low (9)"),
    ("[dependencies.g.breaker]\ncooldown = '10m'\nmax_cooldown = '5m'", 3, "dependencies.g.breaker.max_cooldown: max_cooldown is '5m'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "told"), BAD + CONTRADICTIONS, ids=lambda value: str(value)[:40])
def test_a_file_that_makes_no_sense_is_refused_in_one_line(text: str, line: int, told: str) -> None:  # E10
    with pytest.raises(UsageError) as refused:
        loads(text)
    said = str(refused.value)
    assert said.startswith(f"holdfast.toml:{line}: {told}")
    assert "\n" not in said
    assert len(said) < 400


WITH_TASKS = [
    ("[tasks.tt]\nmax_attempts = 3", 1, "tasks.tt: there is no task 'tt'; did you mean t?"),
    ("[queues.q.limits]\nconcurrency = 2\n[tasks.t.limits]\nconcurrency = 3", 4, "tasks.t.limits.concurrency: task 't' may have more than its whole queue 'q'"),
    ("[queues.q.limits]\nrate = '1/min'\n[tasks.t.limits]\nrate = '1/s'", 4, "tasks.t.limits.rate: task 't' may have more"),
    ("[tasks.t.backoff]\ntable = ['1m', '6h']", 1, "tasks.t.backoff: it asks for 6h, but the cap is 1h; set cap as well"),
    ("[queues.q.backoff]\ncap = '1m'\n[tasks.t.backoff]\nfixed = '5m'", 3, "tasks.t.backoff: it asks for 5m, but the cap is 1m"),
    ("[queues.q.backoff]\nfixed = '5m'\n[tasks.t.backoff]\ncap = '1m'", 1, "queues.q.backoff: it asks for 5m, but the cap is 1m"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "told"), WITH_TASKS, ids=lambda value: str(value)[:40])
def test_a_file_that_does_not_fit_the_tasks_is_refused_in_one_line(
    text: str, line: int, told: str
) -> None:  # E10 E26
    with pytest.raises(UsageError) as refused:
        in_force(text)
    assert str(refused.value).startswith(f"holdfast.toml:{line}: {told}")


def test_a_queue_below_the_limit_that_the_code_gives_a_task_is_refused() -> None:  # E26
    declared = Policy(queue="q", limits=Limits(concurrency=9))
    with pytest.raises(UsageError, match=r"toml:2: queues.q.limits.concurrency: task 't' may have more"):
        in_force("[queues.q.limits]\nconcurrency = 2", declared)


def test_a_queues_backoff_is_a_default_that_a_task_without_retries_may_have() -> None:
    policy = in_force("[queues.q]\nbackoff = { base = '1s' }\n[tasks.t]\nmax_attempts = 1")
    assert policy.retry.max_attempts == 1


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.toml: it cannot be read: No such file"):
        load(tmp_path / "gone.toml")
    with pytest.raises(UsageError, match="it cannot be read: Is a directory"):
        load(tmp_path)
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"# \xe9")
    with pytest.raises(UsageError, match="not UTF-8 text"):
        load(latin)


def test_a_file_nested_without_end_is_refused() -> None:
    with pytest.raises(UsageError, match="nested too deeply"):
        loads("x = " + "[" * 100_000)


def test_the_reference_names_every_key() -> None:
    page = (ROOT / "docs" / "reference" / "holdfast-toml.md").read_text("utf-8")
    knobs = [
        name
        for make in (BreakerPolicy, LimiterPolicy, BudgetPolicy, Quota)
        for name in signature(make).parameters
    ]
    for section in (
        "[zzzzzz]",
        "[tasks.t]\nzzzzzz = 1",
        "[tasks.t.limits]\nzzzzzz = 1",
        "[owners.o]\nzzzzzz = 1",
    ):
        with pytest.raises(UsageError, match="zzzzzz: there is no such key here; there are: ") as refused:
            loads(section)
        knobs += str(refused.value).rpartition("there are: ")[2].split(", ")
    missing = [
        name
        for name in knobs
        if f"{name}`" not in page and f"`[{name}" not in page and f"{name} =" not in page
    ]
    assert missing == []


# -- the app ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_POLICIES", raising=False)
    return tmp_path


def declare(**given: Any) -> Holdfast:
    app = Holdfast("memory://", **given)

    @app.task(queue="q", retry=Retry(2))
    async def t() -> None: ...

    return app


def test_an_app_finds_its_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # E10
    assert declare().tasks["t"].policy.retry.max_attempts == 2
    (here / "holdfast.toml").write_text("[tasks.t]\nmax_attempts = 3")
    (here / "b.toml").write_text("[tasks.t]\nmax_attempts = 4")
    (here / "c.toml").write_text("[tasks.t]\nmax_attempts = 5")
    assert declare().tasks["t"].policy.retry.max_attempts == 3
    monkeypatch.setenv("HOLDFAST_POLICIES", "b.toml")
    assert declare().tasks["t"].policy.retry.max_attempts == 4
    app = declare(policies=here / "c.toml")
    assert app.tasks["t"].policy.retry.max_attempts == 5
    assert app.tasks["t"].plain_spec.max_attempts == 5
    assert app.tasks["t"].declared.retry.max_attempts == 2
    assert set(app.runtime.declared.policies.tasks) == {"t"}


@pytest.mark.anyio
async def test_an_app_with_a_bad_file_can_be_imported_but_not_opened(here: Path) -> None:  # E10
    (here / "holdfast.toml").write_text("[tasks.t]\nmax_attempts = 'six'")
    app = declare()
    assert app.tasks["t"].policy.retry.max_attempts == 2
    with pytest.raises(UsageError, match=r"^holdfast.toml:2: tasks.t.max_attempts"):
        await app.tasks["t"].enqueue()
    with pytest.raises(UsageError, match=r"^holdfast.toml:2: tasks.t.max_attempts"):
        app.tasks["t"].enqueue_sync()


@pytest.mark.anyio
async def test_sync_enqueues_read_the_file_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "holdfast.toml").write_text("[tasks.t]\nmax_attempts = 4\n")
    app = Holdfast(f"sqlite:///{here}/once.db")

    @app.task
    async def t() -> None: ...

    await app.migrate()
    checks = 0

    def counted(*given: Any) -> Any:
        nonlocal checks
        checks += 1
        return apply(*given)

    monkeypatch.setattr(reloading, "apply", counted)
    for _ in range(5):
        await asyncio.to_thread(t.enqueue_sync)
    await asyncio.to_thread(app.sync.close)
    assert checks == 1


async def test_a_missing_file_that_was_named_is_an_error(here: Path) -> None:
    with pytest.raises(UsageError, match=r"^nowhere.toml: it cannot be read"):
        await declare(policies="nowhere.toml").runtime.engine()


@pytest.mark.anyio
async def test_a_section_for_a_task_that_is_not_there_is_refused_when_all_are_known(
    here: Path,
) -> None:  # E10
    (here / "holdfast.toml").write_text("[tasks.tea]\nmax_attempts = 3")
    with pytest.raises(UsageError, match=r"^holdfast.toml:1: tasks.tea: there is no task 'tea'"):
        await declare().runtime.engine()


@pytest.mark.anyio
async def test_an_app_that_only_looks_does_not_mind_the_file(here: Path) -> None:
    (here / "holdfast.toml").write_text("[tasks.tea]\nmax_attempts = 'x'")
    async with Holdfast("memory://") as app:
        assert await app.jobs.counts() is not None
