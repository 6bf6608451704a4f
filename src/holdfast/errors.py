"""All errors that Holdfast raises, in one tree.

HoldfastError
├── UsageError            the call is wrong and must be changed
│   ├── PayloadError      arguments or a result that cannot be stored: not serializable, too large, wrong type
│   ├── UnknownTask       this app has no task of this name
│   ├── TargetNotAllowed  a URL that Holdfast must not call
│   └── NotFound          no record has this id or name
│       ├── UnknownJob        no job has this id
│       ├── UnknownWebhook    no webhook has this id
│       ├── UnknownKey        no valid key has this id
│       ├── UnknownOperation  no operation has this id
│       └── UnknownMessage    no message has this id
├── Forbidden             the owner or the API key lacks the permission; nothing was done
├── BadSignature          the signature of a message is not valid
├── Conflict              the state of the job does not allow this action
│   └── Changed           the job changed after you read it; nothing was done
├── Refused               an extension or a quota refused the move; nothing was done
│   └── QuotaExceeded     the quota of manual retries of the job's owner is used up
├── LeaseLost             a worker's write arrived after its lease had ended; nothing was changed
├── JobFailed             raised by `handle.result()`: the job ended without a result
├── ResultExpired         the result or file of a job has been removed after its retention
└── StoreError            the database refused the operation
    ├── StoreUnavailable  the database cannot be reached now; the same call may succeed later
    └── SchemaMismatch    its schema is missing, of another version or of another family

Handlers raise these to control what happens to the job next:
Retryable · Fatal · Snooze · DependencyHeld
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime, timedelta

    Duration = str | int | float | timedelta  # as `holdfast.values.duration` reads it


class HoldfastError(Exception):
    """The base class of every error that Holdfast raises."""


class UsageError(HoldfastError, TypeError):
    """The call itself is wrong: an unknown option, wrong arguments or an impossible value."""


class PayloadError(UsageError):
    """The arguments or the result of a job cannot be stored as they are."""


class UnknownTask(UsageError):
    """A job names a task that this app does not have."""

    def __init__(self, task: str, known: Collection[str]) -> None:
        super().__init__(f"no task named {task!r}; known here: {', '.join(sorted(known)) or 'none'}")
        self.task = task


class NotFound(UsageError):
    """No record has this id or name."""


class UnknownJob(NotFound):
    """No job has this id."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"no job has the id {job_id}; `holdfast jobs list` shows the existing ones")
        self.job_id = job_id


class TargetNotAllowed(UsageError):
    """Holdfast must not call this URL because of its form, its port or its address."""

    def __init__(self, why: str) -> None:
        super().__init__(f"this URL cannot be called: {why}")


class UnknownWebhook(NotFound):
    """No webhook has this id."""

    def __init__(self, webhook_id: str) -> None:
        super().__init__(
            f"no webhook has the id {str(webhook_id)[:60]}; `holdfast webhooks list` shows the existing ones"
        )
        self.webhook_id = webhook_id


class UnknownKey(NotFound):
    """No valid key has this id."""

    def __init__(self, key_id: str) -> None:
        super().__init__(
            f"no valid key has the id {str(key_id)[:60]}; `holdfast keys list` shows the existing ones"
        )
        self.key_id = key_id


class UnknownOperation(NotFound):
    """No operation has this id."""

    def __init__(self, operation_id: str) -> None:
        super().__init__(
            f"no operation has the id {str(operation_id)[:60]}; `holdfast operations list` shows the existing ones"
        )
        self.operation_id = operation_id


class UnknownMessage(NotFound):
    """No message has this id."""

    def __init__(self, message_id: str) -> None:
        super().__init__(
            f"no message has the id {str(message_id)[:60]!r}; `holdfast outbox list` shows the existing ones"
        )
        self.message_id = message_id


class Forbidden(HoldfastError):
    """The owner or the API key may not do this (HTTP 403). The check of a task raises it to refuse a call."""


class BadSignature(HoldfastError):
    """The signature of a message is not valid: wrong secret, changed content, or too old."""


class Conflict(HoldfastError):
    """The job is not in a state that allows this action, or another action came first."""

    def __init__(self, message: str, *, twin: str | None = None) -> None:
        super().__init__(message)
        self.twin = twin  #: the id of the job that holds the dedupe key, if that is the reason


class Changed(Conflict):
    """The caller wants to act on a version of the job that is no longer current."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} has changed since it was read; read it again")


class Refused(HoldfastError):
    """An extension or a quota refused the move; nothing was done.

    Args:
        message: What was refused, and what to do.
        code: The error code, such as "QUOTA_EXCEEDED".
        facts: Members of the problem document that the HTTP API answers. `resets_at`, a moment, becomes `Retry-After` too.
    """

    def __init__(self, message: str, *, code: str, **facts: Any) -> None:
        super().__init__(message)
        self.code, self.facts = code, facts


class QuotaExceeded(Refused):
    """An owner has used up a quota (HTTP 429); nothing was done.

    Args:
        owner: The owner, or its organization.
        quota: The key of the quota in the policy file, such as "manual_retries_per_day".
        limit: How much the quota allows.
        resets_at: When the next period begins.
    """

    def __init__(self, owner: str, quota: str, limit: int, resets_at: datetime) -> None:
        counted, _, period = quota.partition("_per_")
        super().__init__(
            f"{owner} may use {limit} {counted.replace('_', ' ')} a {period}, and this would be more;"
            f" send it again after {resets_at:%Y-%m-%d %H:%M} UTC, or raise the quota",
            code="QUOTA_EXCEEDED",
            quota=quota,
            limit=limit,
            resets_at=resets_at,
        )
        self.owner, self.quota, self.limit, self.resets_at = owner, quota, limit, resets_at


class LeaseLost(HoldfastError):
    """The lease behind this write has ended: the job was reclaimed, cancelled, timed out or settled."""

    def __init__(self, job_id: str, epoch: int) -> None:
        super().__init__(f"the lease {epoch} of job {job_id} has ended; its write changed nothing")
        self.job_id, self.epoch = job_id, epoch


class JobFailed(HoldfastError):
    """The job ended as failed or cancelled, so it has no result."""

    def __init__(self, job_id: str, state: str, code: str | None, message: str | None) -> None:
        why = f": {code}: {message}" if code else ""
        where = f" (`holdfast jobs show {job_id}` shows its tracebacks)" if state == "failed" else ""
        super().__init__(f"job {job_id} ended as {state}{why}{where}")
        self.job_id, self.state, self.code = job_id, state, code


class ResultExpired(HoldfastError):
    """The result or file of the job was kept for its retention time and then removed."""

    code = "EXPIRED"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"EXPIRED: {what} is gone: {why}; enqueue the job again to make it again")
        self.what = what


class StoreError(HoldfastError):
    """The database refused the operation, and the same call will fail again."""


class StoreUnavailable(StoreError):
    """The database cannot be reached now. The last write may have happened or not; it can be repeated."""


class SchemaMismatch(StoreError):
    """The database has no Holdfast schema, or a schema of another version or family."""


class Retryable(Exception):
    """Raise this to fail the attempt and try again, *after* this delay if given, else after the policy's."""

    def __init__(
        self, message: str = "asked to be retried", *, after: Duration | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.after, self.code = after, code


class Fatal(Exception):
    """Raise this to fail the job without retries. Steps named in *forget* run again after a manual retry."""

    def __init__(
        self, message: str = "cannot succeed", *, code: str = "FATAL", forget: Collection[str] = ()
    ) -> None:
        super().__init__(message)
        self.code, self.forget = code, tuple(forget)


class Snooze(Exception):
    """Raise this to give the attempt back and run again *after* this delay. The attempt is not counted."""

    def __init__(self, after: Duration) -> None:
        super().__init__(f"snoozed for {after}")
        self.after = after


class DependencyHeld(Snooze):
    """The breaker of a dependency is open.

    In a handler, `job.dependency(…)` raises it: do not catch it, and the job waits. Outside of workers,
    `app.breakers.guard(…)` raises it: call again *after* that time.
    """

    after: timedelta

    def __init__(self, name: str, after: timedelta) -> None:
        super().__init__(after)
        self.args = (f"the breaker of {name} is open",)
        self.name = name
