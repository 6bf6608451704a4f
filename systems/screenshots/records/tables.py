"""The tables. What is there is kept, so that several processes may make them at once. Moments are seconds since the epoch."""

from __future__ import annotations

TABLES = (
    # A picture that was asked for, with what its customer was promised then. `judged`: the promise was looked at when it was due.
    """CREATE TABLE IF NOT EXISTS screenshots_job (
        job_id text PRIMARY KEY, owner text NOT NULL, account text NOT NULL, task text NOT NULL, price bigint NOT NULL,
        tier text NOT NULL, credits bigint NOT NULL, created_at double precision NOT NULL,
        due_at double precision, retry_within double precision, judged bigint NOT NULL DEFAULT 0)""",
    "CREATE INDEX IF NOT EXISTS screenshots_job_due ON screenshots_job (due_at) WHERE judged = 0",
    # An attempt that has ended.
    """CREATE TABLE IF NOT EXISTS screenshots_attempt (
        job_id text NOT NULL, epoch bigint NOT NULL, task text NOT NULL, attempt bigint NOT NULL, outcome text NOT NULL,
        code text NOT NULL, at double precision NOT NULL, hour bigint NOT NULL, seconds double precision NOT NULL,
        price bigint NOT NULL, again bigint NOT NULL, PRIMARY KEY (job_id, epoch))""",
    "CREATE INDEX IF NOT EXISTS screenshots_attempt_hour ON screenshots_attempt (hour)",
    # A retry that a person asked for.
    """CREATE TABLE IF NOT EXISTS screenshots_retry (
        job_id text NOT NULL, event bigint NOT NULL, by_whom text NOT NULL, asked_at double precision NOT NULL,
        hour bigint NOT NULL, due_at double precision, judged bigint NOT NULL DEFAULT 0, PRIMARY KEY (job_id, event))""",
    "CREATE INDEX IF NOT EXISTS screenshots_retry_due ON screenshots_retry (due_at) WHERE judged = 0",
    # A promise that was broken: once for each job and kind, and compensated once.
    """CREATE TABLE IF NOT EXISTS screenshots_breach (
        job_id text NOT NULL, kind text NOT NULL, owner text NOT NULL, account text NOT NULL, tier text NOT NULL,
        due_at double precision NOT NULL, found_at double precision NOT NULL, credits bigint NOT NULL,
        compensated_at double precision, PRIMARY KEY (job_id, kind))""",
    "CREATE INDEX IF NOT EXISTS screenshots_breach_owed ON screenshots_breach (job_id) WHERE compensated_at IS NULL",
    # What was decided to be paid for a broken promise, once. The decision comes before the grant, and every bound counts it.
    """CREATE TABLE IF NOT EXISTS screenshots_payout (
        job_id text NOT NULL, kind text NOT NULL, account text NOT NULL, month text NOT NULL, credits bigint NOT NULL,
        PRIMARY KEY (job_id, kind))""",
    "CREATE INDEX IF NOT EXISTS screenshots_payout_account ON screenshots_payout (account)",
    # Who fails at which place, how often in a row, and since when: the breaker of `hosts`.
    """CREATE TABLE IF NOT EXISTS screenshots_host (
        shard bigint NOT NULL, place text NOT NULL, owner text NOT NULL, failures bigint NOT NULL, at double precision NOT NULL,
        PRIMARY KEY (shard, place, owner))""",
    "CREATE INDEX IF NOT EXISTS screenshots_host_at ON screenshots_host (shard, at)",
    # How far the events have been read.
    "CREATE TABLE IF NOT EXISTS screenshots_mark (name text PRIMARY KEY, value bigint NOT NULL)",
)
