"""One function for each operation of the API, named as its document names it. They send nothing: give what they make to
`client.send`.

Made by `python -m tools.openapi`: change the API, not this file.
"""
# ruff: noqa: PT028 - `test_webhook` is no test.

from __future__ import annotations

from typing import Any, Unpack

from holdfast.client.call import Call, StreamCall, part
from holdfast.client.types import (
    Attempts,
    Breakers,
    BreakerView,
    DeadLetterGroups,
    DeadLetterPage,
    DeadLetterView,
    DependencyView,
    DiscardRequest,
    EnqueuedPage,
    EnqueuedView,
    EventPage,
    ExplanationView,
    ForgottenSchedule,
    GetDeadLetterQuery,
    GetJobAttemptsQuery,
    GetJobEventsQuery,
    GetJobLateResultsQuery,
    GetJobQuery,
    HealthView,
    Holds,
    InboundWebhookRequest,
    JobPage,
    JobRequest,
    JobsRequest,
    JobView,
    KeyRequest,
    Keys,
    Lanes,
    LateResults,
    ListDeadLetterGroupsQuery,
    ListDeadLettersQuery,
    ListJobsQuery,
    ListLanesQuery,
    ListMessagesQuery,
    ListOperationsQuery,
    ListQueuesQuery,
    ListStuckJobsQuery,
    MatchCount,
    MessagePage,
    MessageWithBody,
    MovedJob,
    MovedMessage,
    NewKeyView,
    OperationRequest,
    Operations,
    OperationView,
    Owners,
    OwnerView,
    Paused,
    PausedTypes,
    PauseRequest,
    PauseScopeRequest,
    PauseTypesRequest,
    Queues,
    ReasonRequest,
    ReclaimedJobs,
    RedriveRequest,
    ReplayRequest,
    ResultView,
    Resumed,
    ResumedTypes,
    ResumeTypesRequest,
    Retried,
    RetryRequest,
    RevokedKey,
    RevokeKeyRequest,
    RotateKeyRequest,
    RotateSecretRequest,
    Schedules,
    ScopeRequest,
    StreamEventsQuery,
    StreamJobEventsQuery,
    StuckJobs,
    StuckQuery,
    TestSent,
    Topics,
    WebhookPage,
    WebhookRequest,
    WebhookView,
    WebhookWithSecret,
    Workers,
    WorkersStatus,
)


def enqueue_job(*, idempotency_key: str | None = None, **body: Unpack[JobRequest]) -> Call[EnqueuedView]:
    """Enqueue a job."""
    return Call(
        method="POST",
        path="/api/v1/jobs",
        headers={"Idempotency-Key": idempotency_key},
        body=body,
        answers={200: EnqueuedView, 201: EnqueuedView},
        takes_key=True,
    )


def list_jobs(**query: Unpack[ListJobsQuery]) -> Call[JobPage]:
    """Jobs by filter, newest first."""
    return Call(method="GET", path="/api/v1/jobs", query=query, answers={200: JobPage})


def enqueue_jobs(*, idempotency_key: str | None = None, **body: Unpack[JobsRequest]) -> Call[EnqueuedPage]:
    """Enqueue many jobs, all or none."""
    return Call(
        method="POST",
        path="/api/v1/jobs/batch",
        headers={"Idempotency-Key": idempotency_key},
        body=body,
        answers={201: EnqueuedPage},
        takes_key=True,
    )


def get_job(job_id: str, **query: Unpack[GetJobQuery]) -> Call[JobView]:
    """One job."""
    return Call(method="GET", path=f"/api/v1/jobs/{part(job_id)}", query=query, answers={200: JobView})


def get_job_events(job_id: str, **query: Unpack[GetJobEventsQuery]) -> Call[EventPage]:
    """What happened to it, oldest first."""
    return Call(
        method="GET", path=f"/api/v1/jobs/{part(job_id)}/events", query=query, answers={200: EventPage}
    )


def get_job_attempts(job_id: str, **query: Unpack[GetJobAttemptsQuery]) -> Call[Attempts]:
    """Its attempts, each with what it came to."""
    return Call(
        method="GET", path=f"/api/v1/jobs/{part(job_id)}/attempts", query=query, answers={200: Attempts}
    )


def get_job_late_results(job_id: str, **query: Unpack[GetJobLateResultsQuery]) -> Call[LateResults]:
    """Results that came after its end, and had no effect."""
    return Call(
        method="GET",
        path=f"/api/v1/jobs/{part(job_id)}/late-results",
        query=query,
        answers={200: LateResults},
    )


def get_job_result(job_id: str) -> Call[ResultView]:
    """Its result."""
    return Call(method="GET", path=f"/api/v1/jobs/{part(job_id)}/result", answers={200: ResultView})


def explain_job(job_id: str) -> Call[ExplanationView]:
    """Why it is not running, and when it is expected to."""
    return Call(method="GET", path=f"/api/v1/jobs/{part(job_id)}/explain", answers={200: ExplanationView})


def retry_job(
    job_id: str,
    *,
    if_match: str | None = None,
    idempotency_key: str | None = None,
    **body: Unpack[RetryRequest],
) -> Call[Retried]:
    """Run a failed, cancelled, waiting or stuck job now."""
    return Call(
        method="POST",
        path=f"/api/v1/jobs/{part(job_id)}/retry",
        headers={"If-Match": if_match, "Idempotency-Key": idempotency_key},
        body=body,
        answers={200: Retried},
        takes_key=True,
    )


def cancel_job(
    job_id: str,
    *,
    if_match: str | None = None,
    idempotency_key: str | None = None,
    **body: Unpack[ReasonRequest],
) -> Call[MovedJob]:
    """Cancel a queued or running job."""
    return Call(
        method="POST",
        path=f"/api/v1/jobs/{part(job_id)}/cancel",
        headers={"If-Match": if_match, "Idempotency-Key": idempotency_key},
        body=body,
        answers={200: MovedJob},
        takes_key=True,
    )


def begin_operation(
    *, idempotency_key: str | None = None, **body: Unpack[OperationRequest]
) -> Call[MatchCount | OperationView]:
    """Do it to everything that matches."""
    return Call(
        method="POST",
        path="/api/v1/operations",
        headers={"Idempotency-Key": idempotency_key},
        body=body,
        answers={200: MatchCount, 202: OperationView},
        takes_key=True,
    )


def list_operations(**query: Unpack[ListOperationsQuery]) -> Call[Operations]:
    """Operations, newest first."""
    return Call(method="GET", path="/api/v1/operations", query=query, answers={200: Operations})


def get_operation(operation_id: str) -> Call[OperationView]:
    """How an operation stands."""
    return Call(method="GET", path=f"/api/v1/operations/{part(operation_id)}", answers={200: OperationView})


def cancel_operation(operation_id: str, *, idempotency_key: str | None = None) -> Call[OperationView]:
    """Do no more of it; what is done stays done."""
    return Call(
        method="POST",
        path=f"/api/v1/operations/{part(operation_id)}/cancel",
        headers={"Idempotency-Key": idempotency_key},
        answers={200: OperationView},
        takes_key=True,
    )


def list_dead_letters(**query: Unpack[ListDeadLettersQuery]) -> Call[DeadLetterPage]:
    """Dead letters by filter, oldest first."""
    return Call(method="GET", path="/api/v1/dead-letters", query=query, answers={200: DeadLetterPage})


def list_dead_letter_groups(**query: Unpack[ListDeadLetterGroupsQuery]) -> Call[DeadLetterGroups]:
    """Dead letters by their cause."""
    return Call(
        method="GET", path="/api/v1/dead-letters/groups", query=query, answers={200: DeadLetterGroups}
    )


def get_dead_letter(job_id: str, **query: Unpack[GetDeadLetterQuery]) -> Call[DeadLetterView]:
    """One dead letter, by its job's id."""
    return Call(
        method="GET", path=f"/api/v1/dead-letters/{part(job_id)}", query=query, answers={200: DeadLetterView}
    )


def redrive_dead_letter(
    job_id: str,
    *,
    if_match: str | None = None,
    idempotency_key: str | None = None,
    **body: Unpack[RedriveRequest],
) -> Call[MovedJob]:
    """Redrive a dead letter."""
    return Call(
        method="POST",
        path=f"/api/v1/dead-letters/{part(job_id)}/redrive",
        headers={"If-Match": if_match, "Idempotency-Key": idempotency_key},
        body=body,
        answers={200: MovedJob},
        takes_key=True,
    )


def discard_dead_letter(
    job_id: str,
    *,
    if_match: str | None = None,
    idempotency_key: str | None = None,
    **body: Unpack[DiscardRequest],
) -> Call[MovedJob]:
    """Discard a dead letter; its job stays failed."""
    return Call(
        method="POST",
        path=f"/api/v1/dead-letters/{part(job_id)}/discard",
        headers={"If-Match": if_match, "Idempotency-Key": idempotency_key},
        body=body,
        answers={200: MovedJob},
        takes_key=True,
    )


def list_topics() -> Call[Topics]:
    """How topics stand in which a message waits or is parked."""
    return Call(method="GET", path="/api/v1/topics", answers={200: Topics})


def list_messages(**query: Unpack[ListMessagesQuery]) -> Call[MessagePage]:
    """Messages by filter, oldest first."""
    return Call(method="GET", path="/api/v1/messages", query=query, answers={200: MessagePage})


def get_message(message_id: str) -> Call[MessageWithBody]:
    """One message, with its body."""
    return Call(method="GET", path=f"/api/v1/messages/{part(message_id)}", answers={200: MessageWithBody})


def replay_message(message_id: str, *, idempotency_key: str | None = None) -> Call[MovedMessage]:
    """Deliver a published or parked one once more, under its id."""
    return Call(
        method="POST",
        path=f"/api/v1/messages/{part(message_id)}/replay",
        headers={"Idempotency-Key": idempotency_key},
        answers={200: MovedMessage},
        takes_key=True,
    )


def park_message(
    message_id: str, *, idempotency_key: str | None = None, **body: Unpack[DiscardRequest]
) -> Call[MovedMessage]:
    """Take a waiting one out of line until it is replayed."""
    return Call(
        method="POST",
        path=f"/api/v1/messages/{part(message_id)}/park",
        headers={"Idempotency-Key": idempotency_key},
        body=body,
        answers={200: MovedMessage},
        takes_key=True,
    )


def discard_message(
    message_id: str, *, idempotency_key: str | None = None, **body: Unpack[DiscardRequest]
) -> Call[MovedMessage]:
    """Give a parked one up, for good."""
    return Call(
        method="POST",
        path=f"/api/v1/messages/{part(message_id)}/discard",
        headers={"Idempotency-Key": idempotency_key},
        body=body,
        answers={200: MovedMessage},
        takes_key=True,
    )


def list_queues(**query: Unpack[ListQueuesQuery]) -> Call[Queues]:
    """How queues stand."""
    return Call(method="GET", path="/api/v1/queues", query=query, answers={200: Queues})


def list_lanes(**query: Unpack[ListLanesQuery]) -> Call[Lanes]:
    """How lanes stand."""
    return Call(method="GET", path="/api/v1/lanes", query=query, answers={200: Lanes})


def list_holds() -> Call[Holds]:
    """What is held now."""
    return Call(method="GET", path="/api/v1/holds", answers={200: Holds})


def pause_scope(*, idempotency_key: str | None = None, **body: Unpack[PauseScopeRequest]) -> Call[Paused]:
    """Start nothing more of it."""
    return Call(
        method="POST",
        path="/api/v1/pause",
        headers={"Idempotency-Key": idempotency_key},
        body=body,
        answers={200: Paused},
        takes_key=True,
    )


def resume_scope(*, idempotency_key: str | None = None, **body: Unpack[ScopeRequest]) -> Call[Resumed]:
    """End a pause."""
    return Call(
        method="POST",
        path="/api/v1/resume",
        headers={"Idempotency-Key": idempotency_key},
        body=body,
        answers={200: Resumed},
        takes_key=True,
    )


def pause_queue(
    name: str, *, idempotency_key: str | None = None, **body: Unpack[PauseRequest]
) -> Call[Paused]:
    """Pause a queue."""
    return Call(
        method="POST",
        path=f"/api/v1/queues/{part(name)}/pause",
        headers={"Idempotency-Key": idempotency_key},
        body=body,
        answers={200: Paused},
        takes_key=True,
    )


def resume_queue(name: str, *, idempotency_key: str | None = None) -> Call[Resumed]:
    """Resume a queue."""
    return Call(
        method="POST",
        path=f"/api/v1/queues/{part(name)}/resume",
        headers={"Idempotency-Key": idempotency_key},
        answers={200: Resumed},
        takes_key=True,
    )


def list_breakers() -> Call[Breakers]:
    """How dependencies stand."""
    return Call(method="GET", path="/api/v1/breakers", answers={200: Breakers})


def get_breaker(name: str) -> Call[DependencyView]:
    """One dependency."""
    return Call(method="GET", path=f"/api/v1/breakers/{part(name)}", answers={200: DependencyView})


def open_breaker(
    name: str,
    *,
    if_match: str | None = None,
    idempotency_key: str | None = None,
    **body: Unpack[PauseRequest],
) -> Call[BreakerView]:
    """Hold back all calls to it, for a time or its cooldown; then trials begin."""
    return Call(
        method="POST",
        path=f"/api/v1/breakers/{part(name)}/open",
        headers={"If-Match": if_match, "Idempotency-Key": idempotency_key},
        body=body,
        answers={200: BreakerView},
        takes_key=True,
    )


def close_breaker(
    name: str,
    *,
    if_match: str | None = None,
    idempotency_key: str | None = None,
    **body: Unpack[ReasonRequest],
) -> Call[BreakerView]:
    """Let calls to it begin again, without trials."""
    return Call(
        method="POST",
        path=f"/api/v1/breakers/{part(name)}/close",
        headers={"If-Match": if_match, "Idempotency-Key": idempotency_key},
        body=body,
        answers={200: BreakerView},
        takes_key=True,
    )


def try_breaker(
    name: str,
    *,
    if_match: str | None = None,
    idempotency_key: str | None = None,
    **body: Unpack[ReasonRequest],
) -> Call[BreakerView]:
    """Let its trials begin now."""
    return Call(
        method="POST",
        path=f"/api/v1/breakers/{part(name)}/trial",
        headers={"If-Match": if_match, "Idempotency-Key": idempotency_key},
        body=body,
        answers={200: BreakerView},
        takes_key=True,
    )


def list_schedules() -> Call[Schedules]:
    """When schedules tick."""
    return Call(method="GET", path="/api/v1/schedules", answers={200: Schedules})


def pause_schedule(
    name: str, *, idempotency_key: str | None = None, **body: Unpack[PauseRequest]
) -> Call[Paused]:
    """Enqueue nothing more by it."""
    return Call(
        method="POST",
        path=f"/api/v1/schedules/{part(name)}/pause",
        headers={"Idempotency-Key": idempotency_key},
        body=body,
        answers={200: Paused},
        takes_key=True,
    )


def resume_schedule(name: str, *, idempotency_key: str | None = None) -> Call[Resumed]:
    """End its pause."""
    return Call(
        method="POST",
        path=f"/api/v1/schedules/{part(name)}/resume",
        headers={"Idempotency-Key": idempotency_key},
        answers={200: Resumed},
        takes_key=True,
    )


def forget_schedule(name: str, *, idempotency_key: str | None = None) -> Call[ForgottenSchedule]:
    """Remove one that no code declares any more; a declared one begins again with its next tick."""
    return Call(
        method="POST",
        path=f"/api/v1/schedules/{part(name)}/forget",
        headers={"Idempotency-Key": idempotency_key},
        answers={200: ForgottenSchedule},
        takes_key=True,
    )


def list_owners() -> Call[Owners]:
    """The owners that the policy file names."""
    return Call(method="GET", path="/api/v1/owners", answers={200: Owners})


def get_owner(owner: str) -> Call[OwnerView]:
    """What an owner may use, and has used."""
    return Call(method="GET", path=f"/api/v1/owners/{part(owner)}", answers={200: OwnerView})


def list_workers() -> Call[Workers]:
    """The workers that live."""
    return Call(method="GET", path="/api/v1/workers", answers={200: Workers})


def get_workers_status() -> Call[WorkersStatus]:
    """The workers, and what is paused."""
    return Call(method="GET", path="/api/v1/admin/workers/status", answers={200: WorkersStatus})


def list_stuck_jobs(**query: Unpack[ListStuckJobsQuery]) -> Call[StuckJobs]:
    """Attempts that run on for too long while their worker lives."""
    return Call(method="GET", path="/api/v1/admin/jobs/stuck", query=query, answers={200: StuckJobs})


def search_stuck_jobs(**body: Unpack[StuckQuery]) -> Call[StuckJobs]:
    """The same, by more than fits in a URL."""
    return Call(method="POST", path="/api/v1/admin/jobs/stuck", body=body, answers={200: StuckJobs})


def process_stuck_jobs(
    *, idempotency_key: str | None = None, **body: Unpack[StuckQuery]
) -> Call[ReclaimedJobs]:
    """Take stuck jobs back from their workers."""
    return Call(
        method="POST",
        path="/api/v1/admin/jobs/process-stuck",
        headers={"Idempotency-Key": idempotency_key},
        body=body,
        answers={200: ReclaimedJobs},
        takes_key=True,
    )


def pause_retry_scheduler(
    *, idempotency_key: str | None = None, **body: Unpack[PauseTypesRequest]
) -> Call[PausedTypes]:
    """Hold what moves jobs by itself."""
    return Call(
        method="POST",
        path="/api/v1/admin/retry-scheduler/pause",
        headers={"Idempotency-Key": idempotency_key},
        body=body,
        answers={200: PausedTypes},
        takes_key=True,
    )


def resume_retry_scheduler(
    *, idempotency_key: str | None = None, **body: Unpack[ResumeTypesRequest]
) -> Call[ResumedTypes]:
    """Let it go on."""
    return Call(
        method="POST",
        path="/api/v1/admin/retry-scheduler/resume",
        headers={"Idempotency-Key": idempotency_key},
        body=body,
        answers={200: ResumedTypes},
        takes_key=True,
    )


def list_keys() -> Call[Keys]:
    """All keys, those that ended too; oldest first."""
    return Call(method="GET", path="/api/v1/keys", answers={200: Keys})


def create_key(*, idempotency_key: str | None = None, **body: Unpack[KeyRequest]) -> Call[NewKeyView]:
    """Make a key."""
    return Call(
        method="POST",
        path="/api/v1/keys",
        headers={"Idempotency-Key": idempotency_key},
        body=body,
        answers={201: NewKeyView},
        takes_key=True,
    )


def revoke_key(
    key_id: str, *, idempotency_key: str | None = None, **body: Unpack[RevokeKeyRequest]
) -> Call[RevokedKey]:
    """End a key; other servers may believe it for some seconds more."""
    return Call(
        method="POST",
        path=f"/api/v1/keys/{part(key_id)}/revoke",
        headers={"Idempotency-Key": idempotency_key},
        body=body,
        answers={200: RevokedKey},
        takes_key=True,
    )


def rotate_key(
    key_id: str, *, idempotency_key: str | None = None, **body: Unpack[RotateKeyRequest]
) -> Call[NewKeyView]:
    """Make a key in the place of another, which stays good for a while."""
    return Call(
        method="POST",
        path=f"/api/v1/keys/{part(key_id)}/rotate",
        headers={"Idempotency-Key": idempotency_key},
        body=body,
        answers={201: NewKeyView},
        takes_key=True,
    )


def stream_events(**query: Unpack[StreamEventsQuery]) -> StreamCall:
    """What happens, as it happens."""
    return StreamCall(method="GET", path="/api/v1/events/stream", query=query)


def stream_job_events(job_id: str, **query: Unpack[StreamJobEventsQuery]) -> StreamCall:
    """What happens to one job, as it happens."""
    return StreamCall(method="GET", path=f"/api/v1/jobs/{part(job_id)}/events/stream", query=query)


def list_webhooks() -> Call[WebhookPage]:
    """Webhooks, oldest first."""
    return Call(method="GET", path="/api/v1/webhooks", answers={200: WebhookPage})


def create_webhook(
    *, idempotency_key: str | None = None, **body: Unpack[WebhookRequest]
) -> Call[WebhookWithSecret]:
    """Tell a URL of what happens."""
    return Call(
        method="POST",
        path="/api/v1/webhooks",
        headers={"Idempotency-Key": idempotency_key},
        body=body,
        answers={201: WebhookWithSecret},
        takes_key=True,
    )


def create_inbound_webhook(
    *, idempotency_key: str | None = None, **body: Unpack[InboundWebhookRequest]
) -> Call[WebhookWithSecret]:
    """Let others ask for retries by signed messages."""
    return Call(
        method="POST",
        path="/api/v1/webhooks/inbound",
        headers={"Idempotency-Key": idempotency_key},
        body=body,
        answers={201: WebhookWithSecret},
        takes_key=True,
    )


def get_webhook(webhook_id: str) -> Call[WebhookView]:
    """One webhook."""
    return Call(method="GET", path=f"/api/v1/webhooks/{part(webhook_id)}", answers={200: WebhookView})


def remove_webhook(webhook_id: str) -> Call[None]:
    """Send it nothing more."""
    return Call(method="DELETE", path=f"/api/v1/webhooks/{part(webhook_id)}", answers={204: None})


def rotate_webhook_secret(
    webhook_id: str, *, idempotency_key: str | None = None, **body: Unpack[RotateSecretRequest]
) -> Call[WebhookWithSecret]:
    """Make a new secret; for 24 hours messages are signed with both."""
    return Call(
        method="POST",
        path=f"/api/v1/webhooks/{part(webhook_id)}/rotate-secret",
        headers={"Idempotency-Key": idempotency_key},
        body=body,
        answers={200: WebhookWithSecret},
        takes_key=True,
    )


def retire_webhook_secret(webhook_id: str, *, idempotency_key: str | None = None) -> Call[WebhookView]:
    """End a rotation: only the newest secret stays valid."""
    return Call(
        method="POST",
        path=f"/api/v1/webhooks/{part(webhook_id)}/retire-secret",
        headers={"Idempotency-Key": idempotency_key},
        answers={200: WebhookView},
        takes_key=True,
    )


def enable_webhook(webhook_id: str, *, idempotency_key: str | None = None) -> Call[WebhookView]:
    """Begin anew after it was disabled."""
    return Call(
        method="POST",
        path=f"/api/v1/webhooks/{part(webhook_id)}/enable",
        headers={"Idempotency-Key": idempotency_key},
        answers={200: WebhookView},
        takes_key=True,
    )


def disable_webhook(webhook_id: str, *, idempotency_key: str | None = None) -> Call[WebhookView]:
    """Send it nothing until it is enabled."""
    return Call(
        method="POST",
        path=f"/api/v1/webhooks/{part(webhook_id)}/disable",
        headers={"Idempotency-Key": idempotency_key},
        answers={200: WebhookView},
        takes_key=True,
    )


def test_webhook(webhook_id: str, *, idempotency_key: str | None = None) -> Call[TestSent]:
    """Send it a message about nothing."""
    return Call(
        method="POST",
        path=f"/api/v1/webhooks/{part(webhook_id)}/test",
        headers={"Idempotency-Key": idempotency_key},
        answers={202: TestSent},
        takes_key=True,
    )


def replay_webhook(
    webhook_id: str, *, idempotency_key: str | None = None, **body: Unpack[ReplayRequest]
) -> Call[OperationView]:
    """Begin to send events again; an operation of workers."""
    return Call(
        method="POST",
        path=f"/api/v1/webhooks/{part(webhook_id)}/replay",
        headers={"Idempotency-Key": idempotency_key},
        body=body,
        answers={202: OperationView},
        takes_key=True,
    )


def get_liveness() -> Call[str]:
    """200: the process answers."""
    return Call(method="GET", path="/livez", answers={200: str})


def get_readiness() -> Call[str]:
    """200: the database answers within a second and has the right schema. 503: it does not."""
    return Call(method="GET", path="/readyz", answers={200: str, 503: str})


def get_health() -> Call[HealthView]:
    """Whether jobs get done: queues, duties, breakers, pauses, each with its threshold. 503 when a check fails."""
    return Call(method="GET", path="/api/v1/health", answers={200: HealthView, 503: HealthView})


def get_metrics() -> Call[str]:
    """The metrics of this process and of the database, in the text format of Prometheus."""
    return Call(method="GET", path="/metrics", answers={200: str})


def get_openapi() -> Call[dict[str, Any]]:
    """This document."""
    return Call(method="GET", path="/api/v1/openapi.json", answers={200: dict[str, Any]})
