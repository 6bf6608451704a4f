"""The tables. All of a kind: what is there is kept, so that several processes may make them at once."""

from __future__ import annotations

TABLES = (
    # A report as its owner knows it. `retries` and `status` follow the moves of its job, in their transactions.
    """CREATE TABLE IF NOT EXISTS reports_report (
        job_id text PRIMARY KEY, status text NOT NULL, code text, retries bigint NOT NULL DEFAULT 0,
        begun_at double precision NOT NULL, seconds double precision, address text, sha256 text,
        answer text, model text, repairs text)""",
    # A call of the model that was answered, and so paid for.
    """CREATE TABLE IF NOT EXISTS reports_call (
        job_id text NOT NULL, step text NOT NULL, model text NOT NULL, request_id text NOT NULL,
        tokens_in bigint NOT NULL, tokens_out bigint NOT NULL, estimated bigint NOT NULL, cost bigint NOT NULL,
        at double precision NOT NULL, PRIMARY KEY (job_id, step))""",
    # An answer that was of no use. `body` is JSON, so that any character can be in it.
    """CREATE TABLE IF NOT EXISTS reports_capture (
        job_id text NOT NULL, request_id text NOT NULL, schema_hash text NOT NULL, code text NOT NULL,
        at double precision NOT NULL, body text NOT NULL, PRIMARY KEY (job_id, request_id, schema_hash))""",
    "CREATE INDEX IF NOT EXISTS reports_capture_at ON reports_capture (at)",
    # A capture that an operator has found good by another schema: what the next attempt takes instead of a call.
    """CREATE TABLE IF NOT EXISTS reports_override (
        job_id text PRIMARY KEY, request_id text NOT NULL, schema_hash text NOT NULL, body text NOT NULL)""",
    # Documents that the watch has made reports of.
    """CREATE TABLE IF NOT EXISTS reports_seen (
        address text NOT NULL, version text NOT NULL, job_id text NOT NULL, PRIMARY KEY (address, version))""",
)
