"""Every reason a job can wait for, and how several of them are put into one sentence."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.diagnosis.explain import Explanation, explain
from holdfast.diagnosis.wait_reasons import Bound, Facts, Guarded, WaitReason
from holdfast.jobs.job import JobId, JobRow, Lane, WorkerRow
from holdfast.jobs.lanes import Cause, Held, Scope, ScopeKind
from holdfast.jobs.moves import State
from holdfast.jobs.queue_position import MOST_AHEAD, LastMove, Place, QueuePosition, Use
from holdfast.resilience.breaker import Breaker, BreakerState, Trial
from holdfast.resilience.gates import GateRefusal, Hold, Reject
from holdfast.resilience.limits import Rate
from holdfast.resilience.windows import Window, Windows

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
LANE = Lane("mail", "send", "gateway")
WORKER = WorkerRow(name="w-1", started_at=NOW, expires_at=NOW + MINUTE, queues=None, leases=0)


def a_row(**values: Any) -> JobRow:
    plain: dict[str, Any] = {
        "id": JobId("job-1"),
        "task": "send",
        "queue": "mail",
        "owner": None,
        "priority": 0,
        "state": State.QUEUED,
        "generation": 1,
        "epoch": 0,
        "attempt": 0,
        "max_attempts": 3,
        "crashes": 0,
        "run_at": NOW - MINUTE,
        "created_at": NOW - MINUTE,
        "queued_at": NOW - MINUTE,
        "started_at": None,
        "finished_at": None,
        "last_attempt_at": None,
        "updated_at": NOW - MINUTE,
        "deadline_at": None,
        "expired_at": None,
        "leased_by": None,
        "lease_expires_at": None,
        "error_code": None,
        "error_message": None,
        "last_failure": None,
        "retry_type": "AUTOMATIC",
        "manual_retry_count": 0,
        "result": None,
        "tags": (),
        "payload": {},
    }
    return JobRow(**plain | values)


def in_line(ahead: int = 0, kind: str = "queued", lane: Lane = LANE, **meta: Any) -> Facts:
    """A job in line, first in it or not, with a worker."""
    queue_position = QueuePosition(
        lane=lane, place=Place.LINE, now=NOW, ahead=ahead, last=LastMove(kind, NOW - SECOND, 1, meta)
    )
    return Facts(row=a_row(), queue_position=queue_position, workers=[WORKER], tasks={"send"})


def later(kind: str, by: timedelta = MINUTE, attempt: int = 1, **meta: Any) -> Facts:
    """A job that is due later, because of its last move."""
    queue_position = QueuePosition(
        lane=LANE, place=Place.LATER, now=NOW, last=LastMove(kind, NOW - SECOND, attempt, meta)
    )
    row = a_row(run_at=NOW + by, attempt=attempt)
    return Facts(row=row, queue_position=queue_position, workers=[WORKER], tasks={"send"})


def hold(
    kind: ScopeKind = ScopeKind.QUEUE,
    name: str = "mail",
    until: datetime | None = None,
    cause: Cause = Cause.PAUSE,
    reason: str = "deploy",
) -> Held:
    return Held(scope=Scope(kind, name), cause=cause, until=until, reason=reason, by="ann", at=NOW)


def guarded(state: BreakerState, holds: bool = True, **values: Any) -> Guarded:
    breaker = Breaker(state, 3, NOW - MINUTE, NOW - MINUTE, NOW + 30 * SECOND)
    if state is BreakerState.HALF_OPEN:
        breaker = replace(breaker, trials=(Trial("w/1", NOW, True), Trial(), Trial()))
    return Guarded(label="gateway", breaker=breaker, holds=holds, **values)


def told(facts: Facts, reason: WaitReason, until: datetime | None = None) -> str:
    found = explain(facts)
    assert (found.reason, found.expected_at) == (reason, until), found
    assert found.sentence.endswith(".")
    assert "\n" not in found.sentence
    return found.sentence


def reasons(found: Explanation) -> list[str]:
    return [wait["reason"] for wait in found.facts["waits"]]


# -- due later --------------------------------------------------------------------------------------------------------
def test_a_delayed_job_says_when_it_is_due() -> None:  # E28
    facts = later("queued", HOUR, attempt=0)
    assert told(facts, WaitReason.DUE_LATER, NOW + HOUR) == "It is not due before 13:00:00 UTC (in 1h)."


def test_a_day_that_is_not_today_is_named() -> None:  # E28
    facts = later("queued", 30 * HOUR + 20 * MINUTE, attempt=0)
    sentence = told(facts, WaitReason.DUE_LATER, NOW + 30 * HOUR + 20 * MINUTE)
    assert sentence == "It is not due before 2026-03-05 18:20:00 UTC (in 1d7h)."


def test_a_retry_says_which_attempt_failed_and_with_what() -> None:  # E28
    sentence = told(later("retry", error_code="GATEWAY_TIMEOUT"), WaitReason.RETRY, NOW + MINUTE)
    assert sentence == "Attempt 1 of 3 failed with GATEWAY_TIMEOUT; the next is at 12:01:00 UTC (in 1m)."


def test_a_retry_whose_event_was_purged_is_told_from_the_row() -> None:  # E28
    facts = later("retry")
    row = replace(facts.row, last_failure={"code": "BOOM"})
    facts = replace(facts, row=row, queue_position=replace(facts.queue_position, last=None))
    assert "failed with BOOM" in told(facts, WaitReason.RETRY, NOW + MINUTE)


def test_a_lost_worker_is_a_failed_attempt_too() -> None:  # E28
    facts = later("reclaimed", error_code="WORKER_LOST")
    assert "Attempt 1 of 3 failed with WORKER_LOST" in told(facts, WaitReason.RETRY, NOW + MINUTE)


def test_a_closed_retry_window_says_when_it_opens() -> None:  # E16 E28
    night = Windows(allow=[Window(start="18:00", end="08:00")])
    facts = replace(later("retry", 6 * HOUR + MINUTE, error_code="BOOM"), windows=night)
    sentence = told(facts, WaitReason.RETRY_WINDOW, NOW + 6 * HOUR + MINUTE)
    assert sentence.startswith("The retry window is closed and opens at 18:00:00 UTC (in 6h); ")
    assert reasons(explain(facts)) == ["retry_window", "retry"]
    # Due before the window opens: it was not the window that put it off.
    assert explain(replace(facts, row=replace(facts.row, run_at=NOW + HOUR))).reason is WaitReason.RETRY


def test_a_snoozed_job_says_so() -> None:  # E28
    assert "its handler put it off" in told(later("snoozed"), WaitReason.SNOOZED, NOW + MINUTE).lower()


@pytest.mark.parametrize(
    ("why", "said", "reason"),
    [
        ("the rate of owner ann is used up", "owner_rate", WaitReason.OWNER_RATE),
        ("the day's quota of ann is used up (5 of 5)", "quota", WaitReason.QUOTA),
        ("the retry budget of gateway is used up", "retry_budget", WaitReason.RETRY_BUDGET),
        ("the breaker of gateway is open", "breaker_open", WaitReason.BREAKER_OPEN),
        ("night: only at night", "gate", WaitReason.GATE),
        ("the rate of owner ann is used up", None, WaitReason.RELEASED),  # words alone are no code
        ("of a newer worker", "moonphase", WaitReason.RELEASED),
        ("", None, WaitReason.RELEASED),
    ],
)
def test_a_job_that_was_put_off_says_why(
    why: str, said: str | None, reason: WaitReason
) -> None:  # E17 E18 E26 E28
    sentence = told(later("released", reason=why, wait_reason=said), reason, NOW + MINUTE)
    assert sentence.startswith(f"It was put off: {why or 'no reason was given'}; it is due again at 12:01:00")


# -- holds ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (ScopeKind.QUEUE, "mail"),
        (ScopeKind.TASK, "send"),
        (ScopeKind.LANE, "mail/send@gateway"),
        (ScopeKind.DEPENDENCY, "gateway"),
    ],
)
def test_a_pause_says_of_what_by_whom_and_why(kind: ScopeKind, name: str) -> None:  # E27 E28
    facts = replace(in_line(), holds=[hold(kind, name)])
    expected = f"{kind.capitalize()} {name} is paused by ann until it is resumed (deploy)."
    assert told(facts, WaitReason.PAUSED) == expected


def test_a_pause_with_an_end_says_when() -> None:  # E27 E28
    facts = replace(in_line(), holds=[hold(until=NOW + 10 * MINUTE, reason="")])
    sentence = told(facts, WaitReason.PAUSED, NOW + 10 * MINUTE)
    assert sentence == "Queue mail is paused by ann until 12:10:00 UTC (in 10m)."


def test_a_pause_of_something_else_does_not_count() -> None:  # E28
    facts = replace(in_line(), holds=[hold(name="other"), hold(ScopeKind.SCHEDULE, "mail")])
    told(facts, WaitReason.QUEUED)


def test_paused_duties_keep_what_is_due_later() -> None:  # E27 E28
    delayed, retries = hold(ScopeKind.MAINTENANCE, "delayed"), hold(ScopeKind.MAINTENANCE, "retries")
    told(replace(later("queued", attempt=0), holds=[delayed]), WaitReason.PAUSED)
    told(replace(later("retry"), holds=[retries]), WaitReason.PAUSED)
    told(replace(later("queued", attempt=0), holds=[retries]), WaitReason.DUE_LATER, NOW + MINUTE)
    told(replace(in_line(), holds=[delayed, retries]), WaitReason.QUEUED)


def test_a_service_that_asked_for_a_rest_is_named() -> None:  # E12 E28
    until = NOW + 30 * SECOND
    why = "it answered 429 and asked for 30 s"
    held = hold(ScopeKind.DEPENDENCY, "gateway", until, Cause.RETRY_AFTER, why)
    sentence = told(replace(in_line(), holds=[held]), WaitReason.RETRY_AFTER, until)
    assert sentence == f"Dependency gateway asked not to be called until 12:00:30 UTC (in 30s) ({why})."


# -- breaker and limits -----------------------------------------------------------------------------------------------
def test_an_open_breaker_says_since_when_and_when_it_is_tried() -> None:  # E20 E28
    facts = replace(in_line(), dependency=guarded(BreakerState.OPEN))
    sentence = told(facts, WaitReason.BREAKER_OPEN, NOW + 30 * SECOND)
    expected = (
        "The breaker of gateway has been open since 11:59:00 UTC; the next trial is at 12:00:30 UTC (in 30s)."
    )
    assert sentence == expected


def test_a_breaker_whose_time_has_come_has_no_moment_to_wait_for() -> None:  # E28
    closing = guarded(BreakerState.OPEN)
    closing = replace(closing, breaker=replace(closing.breaker, retry_at=NOW))
    assert "trials begin now" in told(replace(in_line(), dependency=closing), WaitReason.BREAKER_OPEN)


def test_a_half_open_breaker_says_how_its_trials_go() -> None:  # E22 E28
    facts = replace(in_line(), dependency=guarded(BreakerState.HALF_OPEN))
    assert "1 of 3 trial calls have succeeded" in told(facts, WaitReason.BREAKER_HALF_OPEN)


def test_a_breaker_that_fails_fast_keeps_nobody_waiting() -> None:  # E21 E28
    told(replace(in_line(), dependency=guarded(BreakerState.OPEN, holds=False)), WaitReason.QUEUED)


def test_the_limit_that_a_dependency_bears_is_told() -> None:  # E23 E28
    busy = guarded(BreakerState.CLOSED, limit=8, in_flight=8, callers=2)
    sentence = told(replace(in_line(), dependency=busy), WaitReason.LANE_LIMIT)
    assert sentence == "8 calls to gateway are in progress, and its current limit is 8."
    told(replace(in_line(), dependency=replace(busy, in_flight=7)), WaitReason.QUEUED)
    told(replace(in_line(), dependency=replace(busy, limit=0)), WaitReason.QUEUED)


def test_a_limit_of_so_many_at_a_time_is_told() -> None:  # E26 E28
    bound = Bound(scope="queue:mail", concurrency=4, use=Use(4))
    sentence = told(replace(in_line(), bounds=[bound]), WaitReason.CONCURRENCY)
    assert sentence == "Queue mail has 4 running jobs, and its limit is 4 at a time."
    told(replace(in_line(), bounds=[replace(bound, use=Use(3))]), WaitReason.QUEUED)


def test_a_rate_says_when_the_next_may_start() -> None:  # E26 E28
    bound = Bound(scope="task:send", rate=Rate(6, MINUTE), use=Use(0, 55 * SECOND))
    sentence = told(replace(in_line(), bounds=[bound]), WaitReason.RATE, NOW + 5 * SECOND)
    assert sentence.startswith(
        "Task send has used up its rate of 6/1m; the next job may start at 12:00:05 UTC"
    )
    told(replace(in_line(), bounds=[replace(bound, use=Use(0, 50 * SECOND))]), WaitReason.QUEUED)


def test_a_busy_key_says_who_has_it() -> None:  # E28
    queue_position = QueuePosition(lane=LANE, place=Place.KEY, now=NOW, holder=JobId("job-0"))
    facts = replace(in_line(), queue_position=queue_position, row=a_row(key="account-7"))
    sentence = told(facts, WaitReason.KEY_BUSY)
    assert (
        sentence == "Job job-0 holds its key 'account-7', and only one job with this key may run at a time."
    )
    told(replace(facts, queue_position=replace(queue_position, holder=None)), WaitReason.KEY_BUSY)


@pytest.mark.parametrize(
    ("answer", "until", "words"),
    [
        (
            Hold(NOW + HOUR, "only at night."),
            NOW + HOUR,
            "holds it until 13:00:00 UTC (in 1h): only at night.",
        ),
        (Hold(None, "no budget"), None, "holds it: no budget."),
        (Reject("not for us"), None, "will reject it: not for us."),
    ],
)
def test_a_gate_of_a_plug_in_speaks_for_itself(
    answer: Hold | Reject, until: datetime | None, words: str
) -> None:  # E19 E28
    sentence = told(replace(in_line(), refusal=GateRefusal("night", answer)), WaitReason.GATE, until)
    assert sentence == f"Gate night {words}"


# -- workers and the line ---------------------------------------------------------------------------------------------
def test_a_queue_that_nobody_serves_is_told() -> None:  # E28
    other = replace(WORKER, queues=("reports",))
    sentence = told(replace(in_line(), workers=[other]), WaitReason.NO_WORKER)
    assert "no live worker serves queue 'mail'" in sentence.lower()


def test_workers_whose_slots_are_all_held_by_handlers_that_wait_are_told() -> None:  # E28
    waits, serves_others = replace(WORKER, waiting=10), replace(WORKER, queues=("reports",))
    sentence = told(replace(in_line(), workers=[waits, waits, serves_others]), WaitReason.NO_SLOT)
    assert (
        "every slot of its workers (20) is held by a handler that waits for a queued job" in sentence.lower()
    )
    told(replace(in_line(), workers=[waits, WORKER]), WaitReason.QUEUED)  # that one has room
    told(replace(in_line(), workers=[replace(serves_others, waiting=1), WORKER]), WaitReason.QUEUED)


def test_a_task_that_the_app_does_not_have_is_told_with_the_near_names() -> None:  # E28
    facts = replace(in_line(), tasks={"sent", "sweep"})
    assert "did you mean sent?" in told(facts, WaitReason.UNKNOWN_TASK)
    told(replace(facts, tasks=None), WaitReason.QUEUED)  # nobody has told which there are


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        (0, "It is the next job in its lane and starts when a worker has a free slot."),
        (1, "1 job is ahead of it in its lane mail/send@gateway."),
        (1234, "1,234 jobs are ahead of it in its lane mail/send@gateway."),
        (MOST_AHEAD, "More than 10,000 jobs are ahead of it in its lane mail/send@gateway."),
    ],
)
def test_a_job_in_line_says_how_many_are_ahead(ahead: int, words: str) -> None:  # E28
    assert told(in_line(ahead), WaitReason.QUEUED) == words


def test_in_a_fair_line_owners_are_served_in_turn() -> None:  # E25 E28
    facts = in_line(3, lane=LANE._replace(fair=True))
    assert told(facts, WaitReason.QUEUED).endswith(", where owners take turns.")


def test_a_job_that_was_given_back_and_is_due_again_says_both() -> None:  # E28
    sentence = told(in_line(2, "released", reason="shutdown"), WaitReason.RELEASED)
    assert sentence.startswith("It was given back (shutdown) and is due again; 2 jobs are ahead of it")
    trial = in_line(2, "released", reason="it was the trial call, which failed", wait_reason="trial_failed")
    told(trial, WaitReason.TRIAL_FAILED)


def test_a_job_that_has_come_due_is_on_its_way() -> None:  # E28
    assert "about to be queued in its lane" in told(later("queued", -SECOND), WaitReason.QUEUED)


# -- several at once --------------------------------------------------------------------------------------------------
def test_what_ends_last_decides_and_all_are_in_the_facts() -> None:  # E28
    facts = replace(
        later("retry", MINUTE, error_code="BOOM"),
        holds=[hold(until=NOW + HOUR), hold(ScopeKind.TASK, "send", NOW + 2 * HOUR)],
        dependency=guarded(BreakerState.OPEN),
        bounds=[Bound(scope="queue:mail", concurrency=1, use=Use(1))],
    )
    assert "task send is paused" in told(facts, WaitReason.PAUSED, NOW + 2 * HOUR).lower()
    found = explain(facts)
    assert reasons(found) == ["paused", "paused", "breaker_open", "retry", "concurrency"]
    assert [wait["until"] for wait in found.facts["waits"]] == [
        NOW + HOUR, NOW + 2 * HOUR, NOW + 30 * SECOND, NOW + MINUTE, None,
    ]  # fmt: skip


def test_what_only_somebody_can_end_decides_before_what_has_an_end() -> None:  # E28
    facts = replace(later("queued", 20 * HOUR), workers=[])
    told(facts, WaitReason.NO_WORKER)
    told(replace(facts, holds=[hold()]), WaitReason.PAUSED)


@given(
    spans=st.lists(st.integers(1, 10**6), max_size=5),
    due=st.integers(-5, 10**6),
    broken=st.sampled_from(BreakerState),
    ahead=st.integers(0, 20_000),
)
def test_the_expected_moment_is_never_before_one_that_has_to_come_first(
    spans: list[int], due: int, broken: BreakerState, ahead: int
) -> None:  # E28
    facts = later("queued", due * SECOND) if due > 0 else in_line(ahead)
    holds = [hold(until=NOW + span * SECOND) for span in spans]
    found = explain(replace(facts, holds=holds, dependency=guarded(broken)))
    moments = [wait["until"] for wait in found.facts["waits"] if wait["until"] is not None]
    assert found.expected_at == max(moments, default=None)
    assert found.reason in reasons(found)


# -- deadlines --------------------------------------------------------------------------------------------------------
def test_a_deadline_that_passes_before_the_start_is_told_besides() -> None:  # E28 E34
    facts = replace(later("queued", HOUR), row=a_row(run_at=NOW + HOUR, deadline_at=NOW + MINUTE))
    sentence = told(facts, WaitReason.DUE_LATER, NOW + HOUR)
    assert sentence.endswith(
        "; its deadline passes before that, at 12:01:00 UTC (in 1m), and it will fail with TIMEOUT."
    )
    assert explain(facts).facts["too_late"] is True


def test_a_deadline_that_leaves_time_is_no_matter() -> None:  # E28 E34
    facts = replace(later("queued"), row=a_row(run_at=NOW + MINUTE, deadline_at=NOW + HOUR))
    assert "deadline" not in told(facts, WaitReason.DUE_LATER, NOW + MINUTE)
    assert "too_late" not in explain(facts).facts


def test_whoever_waits_without_an_end_is_told_how_long_he_has() -> None:  # E28 E34
    facts = replace(in_line(), row=a_row(deadline_at=NOW + HOUR), holds=[hold()])
    assert "unless it is done by 13:00:00 UTC (in 1h)" in told(facts, WaitReason.PAUSED)
    passed = replace(facts, row=a_row(deadline_at=NOW - SECOND))
    assert "its deadline passed at 11:59:59 UTC" in told(passed, WaitReason.PAUSED)


# -- those that do not wait -------------------------------------------------------------------------------------------
def ended(state: State, kind: str = "", **values: Any) -> Facts:
    row = a_row(state=state, attempt=2, finished_at=NOW - MINUTE, **values)
    last = LastMove(kind or state, NOW - MINUTE, 2, {"by": "ann", "reason": "a mistake"})
    return Facts(row=row, queue_position=QueuePosition(lane=LANE, place=None, now=NOW, last=last))


def test_a_job_that_runs_says_where_and_since_when() -> None:  # E28
    facts = ended(State.PROCESSING, "processing", leased_by="w-1", last_attempt_at=NOW - MINUTE)
    facts = replace(facts, row=replace(facts.row, lease_expires_at=NOW + MINUTE))
    sentence = told(facts, WaitReason.RUNNING)
    assert sentence == "It has been running since 11:59:00 UTC: attempt 2 of 3, on worker w-1."
    lost = replace(facts, row=replace(facts.row, lease_expires_at=NOW))
    assert "worker w-1 was lost during attempt 2 of 3" in told(lost, WaitReason.WORKER_LOST).lower()


def test_a_job_that_has_ended_says_how() -> None:  # E28
    assert told(ended(State.COMPLETE), WaitReason.COMPLETE) == (
        "It was completed at 11:59:00 UTC, in attempt 2 of 3."
    )
    assert told(ended(State.CANCELLED), WaitReason.CANCELLED) == (
        "It was cancelled by ann at 11:59:00 UTC (a mistake)."
    )
    failed = ended(State.FAILED, error_code="BOOM", error_message="It broke.\nBadly.")
    assert told(failed, WaitReason.FAILED) == (
        "It failed at 11:59:00 UTC in attempt 2 of 3 with BOOM: It broke. Badly; retry it when the cause is gone."
    )


def test_facts_name_what_is_known_and_leave_out_what_does_not_apply() -> None:  # E28
    facts = explain(in_line(2)).facts
    assert (facts["lane"], facts["ahead"], facts["workers"], facts["state"]) == (
        "mail/send@gateway",
        2,
        1,
        State.QUEUED,
    )
    assert not {"key", "owner", "deadline_at", "error_code"} & facts.keys()
