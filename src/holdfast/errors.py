"""Every error Holdfast raises, in one tree.

HoldfastError
├── UsageError            the call is wrong: fix it
│   ├── PayloadError      arguments cannot be stored (not serialisable, too large, wrong type)
│   ├── UnknownTask       a name that this app does not have
│   ├── TargetNotAllowed  a URL that must not be called
│   ├── UnknownWebhook    no webhook has this id
│   ├── UnknownKey        no valid key has this id
│   ├── UnknownOperation  no operation has this id
│   ├── UnknownMessage    no message has this id
│   ├── UnknownAccount    no account of credits has this name
│   └── UnknownJob        no job has this id
├── Forbidden             this owner or this key may not do that: nothing was done
├── BadSignature          a message was not signed by whom it says
├── Conflict              a person's move lost to the state the job is in
│   └── Changed           it changed since you read it; nothing was done
├── InsufficientCredits   the paying account has fewer credits than this costs: nothing was done
├── QuotaExceeded         an account has used up what it may in this day or month: nothing was done
├── LeaseLost             a worker's write came after its lease had ended: nothing was changed
├── JobFailed             `handle.result()` of a job that ended without a result
├── ResultExpired         the result or file of a job was there once, and was removed
└── StoreError            the database refused
    ├── StoreUnavailable  it cannot be reached now; the same call may go through later
    └── SchemaMismatch    its schema is missing, older or newer than this version of Holdfast, or of another family

Raised by handlers, to steer what happens next:
Retryable · Fatal · Snooze · DependencyHeld
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime, timedelta

    Duration = str | int | float | timedelta  # as `domain.duration` reads it


class HoldfastError(Exception):
    """The root: catch it to catch everything Holdfast raises."""


class UsageError(HoldfastError, TypeError):
    """The call itself is wrong: unknown option, wrong arguments, impossible value."""


class PayloadError(UsageError):
    """The arguments or the result of a job cannot be stored as they are."""


class UnknownTask(UsageError):
    """A job names a task that this app does not have."""

    def __init__(self, task: str, known: Collection[str]) -> None:
        super().__init__(f"no task named {task!r}; known here: {', '.join(sorted(known)) or 'none'}")
        self.task = task


class UnknownJob(UsageError):
    """No job has this id."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"no job has the id {job_id}; `holdfast jobs list` shows those there are")
        self.job_id = job_id


class TargetNotAllowed(UsageError):
    """A URL must not be called from here: its form, its port or its address."""

    def __init__(self, why: str) -> None:
        super().__init__(f"this URL cannot be called: {why}")


class UnknownWebhook(UsageError):
    """No webhook has this id."""

    def __init__(self, webhook_id: str) -> None:
        super().__init__(
            f"no webhook has the id {str(webhook_id)[:60]}; `holdfast webhooks list` shows those there are"
        )
        self.webhook_id = webhook_id


class UnknownKey(UsageError):
    """No valid key has this id."""

    def __init__(self, key_id: str) -> None:
        super().__init__(
            f"no valid key has the id {str(key_id)[:60]}; `holdfast keys list` shows those there are"
        )
        self.key_id = key_id


class UnknownOperation(UsageError):
    """No operation has this id."""

    def __init__(self, operation_id: str) -> None:
        super().__init__(
            f"no operation has the id {str(operation_id)[:60]}; `holdfast operations list` shows those there are"
        )
        self.operation_id = operation_id


class UnknownMessage(UsageError):
    """No message has this id."""

    def __init__(self, message_id: str) -> None:
        super().__init__(
            f"no message has the id {str(message_id)[:60]!r}; `holdfast outbox list` shows those there are"
        )
        self.message_id = message_id


class UnknownAccount(UsageError):
    """No account of credits has this name."""

    def __init__(self, account: str) -> None:
        super().__init__(
            f"no account has the name {str(account)[:60]!r}; `holdfast credits accounts` shows those there are"
        )
        self.account = account


class Forbidden(HoldfastError):
    """An owner or a key may not do this. The check of a task raises it to refuse a call; over HTTP it is 403."""


class BadSignature(HoldfastError):
    """A signed message is not: another secret, another content, or another time."""


class Conflict(HoldfastError):
    """The job is not in a state that allows this move, or somebody else was first."""

    def __init__(self, message: str, *, twin: str | None = None) -> None:
        super().__init__(message)
        self.twin = twin  #: the id of the job that holds the dedupe key, where that is the reason


class Changed(Conflict):
    """Somebody wants to act on what they read, and it is not so any more."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} has changed since it was read; read it again")


class InsufficientCredits(HoldfastError):
    """The account that pays for a job has fewer credits than it costs."""

    code = "INSUFFICIENT_CREDITS"

    def __init__(self, required: int, available: int, account: str) -> None:
        super().__init__(
            f"{account} has {available} credits, and this takes {required}; add credits and send it again"
        )
        self.required, self.available, self.account = required, available, account


class QuotaExceeded(HoldfastError):
    """An account has used up its quota; *resets_at* is when it begins anew."""

    code = "QUOTA_EXCEEDED"

    def __init__(self, account: str, quota: str, limit: int, resets_at: datetime) -> None:
        what, _, period = quota.partition("_per_")
        things = "retries" if what == "retries" else "credits"
        super().__init__(
            f"{account} may use {limit} {things} a {period}, and this would be more;"
            f" send it again after {resets_at:%Y-%m-%d %H:%M} UTC, or raise the quota"
        )
        self.account, self.quota, self.limit, self.resets_at = account, quota, limit, resets_at


class LeaseLost(HoldfastError):
    """The lease behind this write has ended: reclaimed, cancelled, timed out or settled already."""

    def __init__(self, job_id: str, epoch: int) -> None:
        super().__init__(f"the lease {epoch} of job {job_id} has ended; its write changed nothing")
        self.job_id, self.epoch = job_id, epoch


class JobFailed(HoldfastError):
    """The job ended as failed or cancelled, so there is no result to give."""

    def __init__(self, job_id: str, state: str, code: str | None, message: str | None) -> None:
        why = f": {code}: {message}" if code else ""
        super().__init__(f"job {job_id} ended as {state}{why}")
        self.job_id, self.state, self.code = job_id, state, code


class ResultExpired(HoldfastError):
    """What the job left behind was kept for its time and then removed."""

    code = "EXPIRED"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"EXPIRED: {what} is gone: {why}; enqueue the job again to have it made anew")
        self.what = what


class StoreError(HoldfastError):
    """The database refused, and trying again will not help by itself."""


class StoreUnavailable(StoreError):
    """The database cannot be reached now. Nothing is known about the last write: it may be sent again."""


class SchemaMismatch(StoreError):
    """The database has no Holdfast schema, or one of another version or family."""


class Retryable(Exception):
    """Raise it to fail this attempt and try again, *after* a delay of your own if given."""

    def __init__(
        self, message: str = "asked to be retried", *, after: Duration | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.after, self.code = after, code


class Fatal(Exception):
    """Raise it to end the job now: no retry can help. Steps named by *forget* run anew after a manual retry."""

    def __init__(
        self, message: str = "cannot succeed", *, code: str = "FATAL", forget: Collection[str] = ()
    ) -> None:
        super().__init__(message)
        self.code, self.forget = code, tuple(forget)


class Snooze(Exception):
    """Raise it to give the attempt back and be called again *after* a while. It burns nothing."""

    def __init__(self, after: Duration) -> None:
        super().__init__(f"snoozed for {after}")
        self.after = after


class DependencyHeld(Snooze):
    """Raised by `job.dependency(…)` when the breaker of that dependency is open: let it through, and the job waits. Raised by
    `app.dependency_call(…)`, too: call again *after* that time."""

    after: timedelta

    def __init__(self, name: str, after: timedelta) -> None:
        super().__init__(after)
        self.args = (f"the breaker of {name} is open",)
        self.name = name
