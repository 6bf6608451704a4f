"""The CREATE statements of the tables. Each is idempotent, so several processes can run them at once.

Times are seconds since the epoch.
"""

from __future__ import annotations

TABLES = (
    # One row for each requested picture, with the promise at that time. `judged` is set once a due promise
    # was checked.
    """CREATE TABLE IF NOT EXISTS screenshots_job (
        job_id text PRIMARY KEY, owner text NOT NULL, account text NOT NULL, task text NOT NULL, price bigint NOT NULL,
        tier text NOT NULL, credits bigint NOT NULL, created_at double precision NOT NULL,
        due_at double precision, retry_within double precision, judged bigint NOT NULL DEFAULT 0)""",
    "CREATE INDEX IF NOT EXISTS screenshots_job_due ON screenshots_job (due_at) WHERE judged = 0",
    # One row for each ended attempt.
    """CREATE TABLE IF NOT EXISTS screenshots_attempt (
        job_id text NOT NULL, epoch bigint NOT NULL, task text NOT NULL, attempt bigint NOT NULL, outcome text NOT NULL,
        code text NOT NULL, at double precision NOT NULL, hour bigint NOT NULL, seconds double precision NOT NULL,
        price bigint NOT NULL, again bigint NOT NULL, PRIMARY KEY (job_id, epoch))""",
    "CREATE INDEX IF NOT EXISTS screenshots_attempt_hour ON screenshots_attempt (hour)",
    # One row for each manual retry.
    """CREATE TABLE IF NOT EXISTS screenshots_retry (
        job_id text NOT NULL, event bigint NOT NULL, by_whom text NOT NULL, asked_at double precision NOT NULL,
        hour bigint NOT NULL, due_at double precision, judged bigint NOT NULL DEFAULT 0, PRIMARY KEY (job_id, event))""",
    "CREATE INDEX IF NOT EXISTS screenshots_retry_due ON screenshots_retry (due_at) WHERE judged = 0",
    # One row for each broken promise, by job and kind. It is compensated once.
    """CREATE TABLE IF NOT EXISTS screenshots_breach (
        job_id text NOT NULL, kind text NOT NULL, owner text NOT NULL, account text NOT NULL, tier text NOT NULL,
        due_at double precision NOT NULL, found_at double precision NOT NULL, credits bigint NOT NULL,
        compensated_at double precision, PRIMARY KEY (job_id, kind))""",
    "CREATE INDEX IF NOT EXISTS screenshots_breach_owed ON screenshots_breach (job_id) WHERE compensated_at IS NULL",
    # The amount decided for each broken promise. It is stored before the grant, and counts towards every
    # bound.
    """CREATE TABLE IF NOT EXISTS screenshots_payout (
        job_id text NOT NULL, kind text NOT NULL, account text NOT NULL, month text NOT NULL, credits bigint NOT NULL,
        PRIMARY KEY (job_id, kind))""",
    "CREATE INDEX IF NOT EXISTS screenshots_payout_account ON screenshots_payout (account)",
    # The failures in a row of each customer at each place: the breaker of `hosts`.
    """CREATE TABLE IF NOT EXISTS screenshots_host (
        shard bigint NOT NULL, place text NOT NULL, owner text NOT NULL, failures bigint NOT NULL, at double precision NOT NULL,
        PRIMARY KEY (shard, place, owner))""",
    "CREATE INDEX IF NOT EXISTS screenshots_host_at ON screenshots_host (shard, at)",
    # The position in the events, and the lock of `payouts`.
    "CREATE TABLE IF NOT EXISTS screenshots_mark (name text PRIMARY KEY, value bigint NOT NULL)",
)
