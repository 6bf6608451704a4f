"""The shapes of requests and answers.

Made by `python -m tools.openapi`: change the API, not this file.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Required, TypedDict

import msgspec

# What is asked for is a TypedDict, whose words are checked by the type checker; what is answered is a Struct that takes words
# and fields which are newer than this client. Durations are written "30s" or "1h30m".


MessageState = Literal["waiting", "published", "parked"]

OperationAction = Literal["redrive", "discard", "retry", "cancel"]

Role = Literal["viewer", "owner", "operator", "admin"]

ScopeKind = Literal["queue", "task", "lane", "dependency", "schedule", "maintenance"]

State = Literal["queued", "processing", "complete", "failed", "cancelled"]

Type = Literal["STUCK_JOBS", "FAILED_JOBS", "DELAYED_JOBS"]


class DiscardRequest(TypedDict, total=False):
    reason: Required[str]


class InboundWebhookRequest(TypedDict, total=False):
    owner: str | None  #: Whose jobs it may retry. A key of an owner may leave it out.
    description: str  #: Why; on record with what was done.


class JobRequest(TypedDict, total=False):
    """A call of a task, to be done later."""

    task: Required[
        str
    ]  #: Which task; one that this app declares, and opens to keys of owners by `http=True` if yours is one.
    args: dict[str, Any]  #: Its arguments by name, checked as the task declares them.
    owner: str | None  #: Whose job it is. A key of an owner may leave it out.
    priority: int | Literal["low", "normal", "high"]  #: A number, or the name of a level: low, normal, high.
    queue: str | None  #: Instead of the task's own. A key of an owner names only declared ones.
    shard: str | None  #: Of the service it calls. Not for keys of owners.
    run_at: datetime | None  #: Not before this moment.
    delay: str | None  #: Not before this much time has passed.
    deadline: datetime | str | None  #: By when it must be done: a moment or a duration.
    start_within: str | None  #: How late it may start and still be of use.
    dedupe_key: str | None  #: A twin of this key stands in for the new job.
    dedupe_for: str | None  #: How long a complete twin does.
    key: str | None  #: Jobs of one key run one at a time.
    tags: list[str]
    max_attempts: int | None


class JobsRequest(TypedDict, total=False):
    """Many calls: all are stored, or none."""

    jobs: Required[list[JobRequest]]


class KeyRequest(TypedDict, total=False):
    role: Required[Role]
    owner: str | None  #: For the role owner: whose jobs it reaches.
    name: str  #: What people call it.
    lasts: str | None  #: After it the key ends; null: it does not.


class OperationFilter(TypedDict, total=False):
    """Which jobs (retry, cancel) or dead letters (redrive, discard); all that is given must match, nothing given is all."""

    ids: list[str] | None
    state: list[State] | None
    task: list[str] | None
    queue: list[str] | None
    owner: str | None
    tag: str | None
    key: str | None
    error_code: str | None
    created_after: datetime | None
    created_before: datetime | None
    code: list[str] | None  #: Of dead letters: the error code of their last attempt.
    fingerprint: str | None  #: Of dead letters: their cause.
    died_after: datetime | None
    died_before: datetime | None
    internal: bool | None  #: With the engine's own jobs, which are left out unless they are named.


class OperationRequest(TypedDict, total=False):
    action: Required[OperationAction]
    filter: Required[OperationFilter]
    rate: float | None  #: The maximum number of jobs a second.
    to_queue: str | None  #: Of redrive: another queue than their own.
    reason: str  #: Why; on record with what was done.
    dry_run: bool  #: Only count what matches.


class PauseRequest(TypedDict, total=False):
    duration: str | None  #: After it, work resumes by itself; null: when resumed.
    reason: str  #: Why; on record with what was done.


class PauseScopeRequest(TypedDict, total=False):
    """What to pause: a queue, task, lane, dependency, schedule or duty."""

    duration: str | None  #: After it, work resumes by itself; null: when resumed.
    reason: str  #: Why; on record with what was done.
    kind: Required[ScopeKind]
    name: Required[str]


class PauseTypesRequest(TypedDict, total=False):
    duration: str | None  #: After it they resume by themselves; null: when resumed.
    types: list[Type]
    reason: str  #: Why; on record with what was done.


class ReasonRequest(TypedDict, total=False):
    reason: str  #: Why; on record with what was done.


class RedriveRequest(TypedDict, total=False):
    to_queue: str | None  #: Another queue than its own. A key of an owner names only declared ones.


class ReplayRequest(TypedDict, total=False):
    after: str  #: Behind this event …
    before: str | None  #: … and before this one; null: up to now.


class ResumeTypesRequest(TypedDict, total=False):
    types: list[Type]


class RetryRequest(TypedDict, total=False):
    from_step: str | None  #: Forget this step and every one recorded after it.
    args: (
        dict[str, Any] | None
    )  #: Call it with these instead, all of them by name. Its steps are forgotten, unless from_step says which.


class RevokeKeyRequest(TypedDict, total=False):
    after: str | None  #: Not now, but after this while.


class RotateKeyRequest(TypedDict, total=False):
    overlap: str  #: How long the old key stays good beside the new one.


class RotateSecretRequest(TypedDict, total=False):
    keep_old: bool  #: The old secret stays valid for 24 hours, or until it is retired.


class ScopeRequest(TypedDict, total=False):
    kind: Required[ScopeKind]
    name: Required[str]


class StuckQuery(TypedDict, total=False):
    longer_than: str | None  #: Instead of what each task says.
    tasks: list[str]  #: Only these. Default: all.
    owner: str | None  #: Only of this owner.
    ids: list[str]  #: Only these jobs. Default: all.
    limit: int


class WebhookRequest(TypedDict, total=False):
    url: Required[str]
    events: list[str]  #: Kinds of events; none: the ends of jobs; "*": all.
    owner: str | None  #: Whose jobs. A key of an owner may leave it out.
    description: str  #: Why; on record with what was done.


class JobOptions(TypedDict, total=False):
    """Of a new one, what can be left out."""

    owner: str | None  #: Whose job it is. A key of an owner may leave it out.
    priority: int | Literal["low", "normal", "high"]  #: A number, or the name of a level: low, normal, high.
    queue: str | None  #: Instead of the task's own. A key of an owner names only declared ones.
    shard: str | None  #: Of the service it calls. Not for keys of owners.
    run_at: datetime | None  #: Not before this moment.
    delay: str | None  #: Not before this much time has passed.
    deadline: datetime | str | None  #: By when it must be done: a moment or a duration.
    start_within: str | None  #: How late it may start and still be of use.
    dedupe_key: str | None  #: A twin of this key stands in for the new job.
    dedupe_for: str | None  #: How long a complete twin does.
    key: str | None  #: Jobs of one key run one at a time.
    tags: list[str]
    max_attempts: int | None


class OperationOptions(TypedDict, total=False):
    """Of a new one, what can be left out."""

    rate: float | None  #: The maximum number of jobs a second.
    to_queue: str | None  #: Of redrive: another queue than their own.
    reason: str  #: Why; on record with what was done.


class ListJobsQuery(TypedDict, total=False):
    """What `list_jobs` can be asked for."""

    state: list[State] | State
    task: list[str] | str
    queue: list[str] | str
    owner: str | None
    tag: str | None
    key: str | None
    error_code: str | None
    created_after: datetime | None
    created_before: datetime | None
    internal: bool  #: With the engine's own jobs, which are left out unless they are named.
    cursor: str | None  #: `next` of the page before; leave it out at first.
    limit: int  #: At most this many; a page never holds more than 500.


class GetJobQuery(TypedDict, total=False):
    """What `get_job` can be asked for."""

    include: Literal["args"] | None  #: `args`: with its arguments, those of secret names hidden.


class GetJobEventsQuery(TypedDict, total=False):
    """What `get_job_events` can be asked for."""

    cursor: str | None  #: `next` of the page before; leave it out at first.
    limit: int  #: At most this many; a page never holds more than 500.


class GetJobAttemptsQuery(TypedDict, total=False):
    """What `get_job_attempts` can be asked for."""

    cursor: str | None  #: `next` of the page before; leave it out at first.
    limit: int  #: At most this many; a page never holds more than 500.


class GetJobLateResultsQuery(TypedDict, total=False):
    """What `get_job_late_results` can be asked for."""

    cursor: str | None  #: `next` of the page before; leave it out at first.
    limit: int  #: At most this many; a page never holds more than 500.


class ListOperationsQuery(TypedDict, total=False):
    """What `list_operations` can be asked for."""

    limit: int  #: At most this many; a page never holds more than 500.


class ListDeadLettersQuery(TypedDict, total=False):
    """What `list_dead_letters` can be asked for."""

    task: list[str] | str
    queue: list[str] | str
    code: list[str] | str
    fingerprint: str | None
    owner: str | None
    died_after: datetime | None
    died_before: datetime | None
    internal: bool  #: With the engine's own jobs, which are left out unless they are named.
    include: Literal["args"] | None  #: `args`: with its arguments, those of secret names hidden.
    cursor: str | None  #: `next` of the page before; leave it out at first.
    limit: int  #: At most this many; a page never holds more than 500.


class ListDeadLetterGroupsQuery(TypedDict, total=False):
    """What `list_dead_letter_groups` can be asked for."""

    task: list[str] | str
    queue: list[str] | str
    code: list[str] | str
    owner: str | None
    internal: bool  #: With the engine's own jobs, which are left out unless they are named.
    limit: int  #: At most this many; a page never holds more than 500.


class GetDeadLetterQuery(TypedDict, total=False):
    """What `get_dead_letter` can be asked for."""

    include: Literal["args"] | None  #: `args`: with its arguments, those of secret names hidden.


class ListMessagesQuery(TypedDict, total=False):
    """What `list_messages` can be asked for."""

    topic: str | None
    key: str | None
    state: MessageState | None
    cursor: str | None  #: `next` of the page before; leave it out at first.
    limit: int  #: At most this many; a page never holds more than 500.


class ListQueuesQuery(TypedDict, total=False):
    """What `list_queues` can be asked for."""

    cursor: str | None  #: `next` of the page before; leave it out at first.
    limit: int  #: At most this many; a page never holds more than 500.


class ListLanesQuery(TypedDict, total=False):
    """What `list_lanes` can be asked for."""

    cursor: str | None  #: `next` of the page before; leave it out at first.
    limit: int  #: At most this many; a page never holds more than 500.


class ListStuckJobsQuery(TypedDict, total=False):
    """What `list_stuck_jobs` can be asked for."""

    longer_than: str | None
    task: str | None
    owner: str | None
    limit: int  #: At most this many; a page never holds more than 500.


class StreamEventsQuery(TypedDict, total=False):
    """What `stream_events` can be asked for."""

    kind: list[str] | str  #: Only these kinds of events.
    owner: str | None
    after: str | None  #: The `id` of the last event you have; without it, from now on.


class StreamJobEventsQuery(TypedDict, total=False):
    """What `stream_job_events` can be asked for."""

    kind: list[str] | str  #: Only these kinds of events.
    after: str | None  #: The `id` of the last event you have; without it, from now on.


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int
    generation: int
    attempt: int
    worker: str | None = None
    started_at: datetime
    ended_at: datetime | None = None
    duration_ms: float | None = None
    outcome: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    error_detail: str | None = None  #: For engineers; not shown to keys of owners.
    fingerprint: str | None = None
    gateway_status: int | None = None
    traceback: str | None = (
        None  #: Where it was raised: files and lines, without source. Not shown to keys of owners.
    )
    logs: list[str]


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    attempts: list[AttemptView]
    next: str | None = None  #: The cursor to the next page; null: this was the last.


class BreakerView(msgspec.Struct, frozen=True, kw_only=True):
    dependency: str  #: With its shard: name#shard.
    state: str
    version: int
    since: datetime | None = None
    opened_at: datetime | None = None
    next_trial_at: datetime | None = None
    reopens: int


class Breakers(msgspec.Struct, frozen=True, kw_only=True):
    breakers: list[DependencyView]


class CheckView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    status: str
    seen: Any = None  #: What was found.
    threshold: Any = None  #: From where on it is worth a word.
    text: str


class DeadLetterGroupView(msgspec.Struct, frozen=True, kw_only=True):
    fingerprint: str
    task: str
    code: str
    message: str
    count: int
    first_at: datetime
    last_at: datetime
    sample: str


class DeadLetterGroups(msgspec.Struct, frozen=True, kw_only=True):
    groups: list[DeadLetterGroupView]


class DeadLetterPage(msgspec.Struct, frozen=True, kw_only=True):
    dead_letters: list[DeadLetterView]
    next: str | None = None


class DeadLetterView(msgspec.Struct, frozen=True, kw_only=True):
    id: str  #: The job's own id.
    task: str
    queue: str
    owner: str | None = None
    code: str
    message: str
    detail: str | None = None  #: For engineers; not shown to keys of owners.
    fingerprint: str
    attempts: int
    at: datetime
    traceback: str | None = (
        None  #: Of its last attempt, where one letter is asked for. Not shown to keys of owners.
    )
    args: Any = None  #: Only with `include=args`; values of secret names are hidden.


class DependencyView(msgspec.Struct, frozen=True, kw_only=True):
    dependency: str  #: With its shard: name#shard.
    state: str
    version: int
    since: datetime | None = None
    opened_at: datetime | None = None
    next_trial_at: datetime | None = None
    reopens: int
    votes: int
    callers: int
    limit: int
    in_flight: int
    latency_seconds: float | None = None
    calls: int
    failures: int


class EnqueuedPage(msgspec.Struct, frozen=True, kw_only=True):
    jobs: list[EnqueuedView]


class EnqueuedView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    state: str
    duplicate: bool  #: A twin with the same dedupe key stands in for this call.


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    events: list[EventView]
    next: str | None = None


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    at: datetime
    kind: str
    job_id: str
    epoch: int
    attempt: int
    meta: dict[str, Any]


class ExplanationView(msgspec.Struct, frozen=True, kw_only=True):
    sentence: str
    reason: str
    facts: dict[str, Any]
    expected_at: datetime | None = None


class ForgottenSchedule(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    forgotten: bool


class HealthView(msgspec.Struct, frozen=True, kw_only=True):
    status: str  #: The worst of all checks.
    checks: list[CheckView]


class HeldView(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    name: str
    cause: str
    until: datetime | None = None  #: null: until somebody resumes it.
    reason: str
    by: str
    at: datetime


class Holds(msgspec.Struct, frozen=True, kw_only=True):
    holds: list[HeldView]


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    jobs: list[JobView]
    next: str | None = None  #: The cursor to the next page; null: this was the last.


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as everyone sees it."""

    id: str
    task: str
    queue: str
    owner: str | None = None
    priority: int
    state: str
    generation: int
    epoch: int
    attempt: int
    max_attempts: int
    crashes: int
    run_at: datetime
    created_at: datetime
    queued_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    failed_at: datetime | None = None
    last_attempt_at: datetime | None = None
    updated_at: datetime
    deadline_at: datetime | None = None
    expired_at: datetime | None = None
    leased_by: str | None = None
    lease_expires_at: datetime | None = None
    error_code: str | None = None
    error_message: str | None = None
    last_failure: dict[str, Any] | None = None
    retry_type: str
    manual_retry_count: int
    is_retryable: bool
    result: Any = None  #: Only of one job, not in lists; large ones are at /result.
    artifact: str | None = None
    tags: list[str]
    progress: dict[str, Any] | None = None
    key: str | None = None
    args: Any = None  #: Only with `include=args`; values of secret names are hidden.


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    role: str
    owner: str | None = None
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    keys: list[KeyView]


class LaneView(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    queue: str
    task: str
    dependency: str
    fair: bool
    waiting: int
    held: HeldView | None = None
    breaker: str | None = None
    limit: int | None = None
    in_flight: int | None = None


class Lanes(msgspec.Struct, frozen=True, kw_only=True):
    lanes: list[LaneView]
    next: str | None = None  #: The cursor to the next page; null: this was the last.


class LateResultView(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int
    at: datetime
    reason: str
    outcome: str
    result: Any = None
    is_late: bool


class LateResults(msgspec.Struct, frozen=True, kw_only=True):
    late_results: list[LateResultView]
    next: str | None = None  #: The cursor to the next page; null: this was the last.


class MatchCount(msgspec.Struct, frozen=True, kw_only=True):
    dry_run: bool
    matched: int


class MessagePage(msgspec.Struct, frozen=True, kw_only=True):
    messages: list[MessageView]
    next: str | None = None


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    number: int  #: The order in which they were stored.
    id: str
    topic: str
    key: str | None = None
    state: str
    tries: int  #: That failed.
    error: str | None = None  #: Of the last try, or why it is parked.
    bytes: int  #: Of its body.
    headers: dict[str, str]
    created_at: datetime
    not_before: datetime | None = None
    settled_at: datetime | None = None  #: When it was published or parked.


class MessageWithBody(msgspec.Struct, frozen=True, kw_only=True):
    number: int  #: The order in which they were stored.
    id: str
    topic: str
    key: str | None = None
    state: str
    tries: int  #: That failed.
    error: str | None = None  #: Of the last try, or why it is parked.
    bytes: int  #: Of its body.
    headers: dict[str, str]
    created_at: datetime
    not_before: datetime | None = None
    settled_at: datetime | None = None  #: When it was published or parked.
    body: str  #: As text; what is none, as hexadecimal digits.
    is_text: bool


class MovedJob(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    state: str


class MovedMessage(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    state: str  #: waiting, parked, or discarded: then it is gone.


class NewKeyView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    role: str
    owner: str | None = None
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    secret: str  #: Kept nowhere: this is the only time it is told.


class OperationView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    action: str  #: redrive, discard, retry, cancel or replay.
    filter: dict[str, Any]  #: The filter; of a replay the webhook, `after` and `before`.
    by: str
    options: dict[str, Any]
    rate: float | None = None
    owner: str | None = None
    progress: str
    matched: int  #: When it began. A replay counts nothing beforehand.
    done: int
    refused: int  #: They had moved on meanwhile.
    error: str | None = None
    created_at: datetime
    updated_at: datetime


class Operations(msgspec.Struct, frozen=True, kw_only=True):
    operations: list[OperationView]


class OwnerView(msgspec.Struct, frozen=True, kw_only=True):
    """Days and months are of UTC."""

    owner: str
    weight: float  #: Its share in fair lines.
    rate: str | None = None  #: How often its jobs may start.
    concurrency: int | None = None
    jobs: QuotaView
    cost: QuotaView


class Owners(msgspec.Struct, frozen=True, kw_only=True):
    owners: list[OwnerView]


class Paused(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    name: str
    paused: bool


class PausedTypes(msgspec.Struct, frozen=True, kw_only=True):
    paused: list[str]
    duration: str | None = None


class PeriodUsage(msgspec.Struct, frozen=True, kw_only=True):
    used: float
    limit: float | None = None  #: null: no bound, and then its use is not counted.


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    tasks: list[str]
    waiting: int
    workers: int
    held: HeldView | None = None


class Queues(msgspec.Struct, frozen=True, kw_only=True):
    queues: list[QueueView]
    next: str | None = None  #: The cursor to the next page; null: this was the last.


class QuotaView(msgspec.Struct, frozen=True, kw_only=True):
    day: PeriodUsage
    month: PeriodUsage


class ReclaimedJobs(msgspec.Struct, frozen=True, kw_only=True):
    found: int
    processed: int  #: Taken back from their workers: retried, or dead letters.


class ResultView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    state: str
    result: Any = None


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    name: str
    resumed: bool  #: Whether there was a pause to end.


class ResumedTypes(msgspec.Struct, frozen=True, kw_only=True):
    resumed: list[str]  #: Those of them that were paused.


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    state: str
    queue_position: int


class RevokedKey(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    revoked: bool


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    task: str | None = None
    when: str | None = None
    zone: str | None = None
    last: datetime | None = None
    next: datetime | None = None
    held: HeldView | None = None


class Schedules(msgspec.Struct, frozen=True, kw_only=True):
    schedules: list[ScheduleView]


class StuckJobs(msgspec.Struct, frozen=True, kw_only=True):
    jobs: list[StuckView]


class StuckView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    task: str
    queue: str
    attempt: int
    max_attempts: int
    worker: str
    epoch: int
    longer_than: str  #: How long an attempt of its task may take.


class TestSent(msgspec.Struct, frozen=True, kw_only=True):
    job_id: str  #: The job that sends it; its result is the status of the answer.


class TopicView(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    waiting: int
    parked: int
    oldest_seconds: float | None = None  #: How long the one that has waited longest has waited.


class Topics(msgspec.Struct, frozen=True, kw_only=True):
    topics: list[TopicView]


class WebhookPage(msgspec.Struct, frozen=True, kw_only=True):
    webhooks: list[WebhookView]


class WebhookView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    inbound: bool  #: It is not told of events; its messages ask for retries.
    url: str
    events: list[str]  #: Kinds of events; none: the ends of jobs.
    owner: str | None = None  #: Whose jobs it is about; null: everybody's.
    description: str
    created_at: datetime
    failing_since: datetime | None = None
    disabled_at: datetime | None = None
    disabled_reason: str | None = None
    secrets: int  #: How many are valid: two during a rotation.


class WebhookWithSecret(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    inbound: bool  #: It is not told of events; its messages ask for retries.
    url: str
    events: list[str]  #: Kinds of events; none: the ends of jobs.
    owner: str | None = None  #: Whose jobs it is about; null: everybody's.
    description: str
    created_at: datetime
    failing_since: datetime | None = None
    disabled_at: datetime | None = None
    disabled_reason: str | None = None
    secrets: int  #: How many are valid: two during a rotation.
    secret: str  #: Shown now and never again.


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    started_at: datetime
    expires_at: datetime  #: When it is taken for lost, unless it is heard of before.
    queues: list[str] | None = None  #: null: whichever its tasks are in.
    leases: int  #: How many jobs it holds.
    waiting: int  #: How many of its handlers wait for another job to end.


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    workers: list[WorkerView]


class WorkersStatus(msgspec.Struct, frozen=True, kw_only=True):
    workers: list[WorkerView]
    count: int
    busy: int  #: Workers that hold jobs.
    leases: int
    paused: list[str]  #: Duties that are paused.
