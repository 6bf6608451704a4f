"""The CREATE statements of the tables. Each is idempotent, so several processes can run them at once."""

from __future__ import annotations

TABLES = (
    # One row for each report. `retries` and `status` are updated in the transactions that move its job.
    """CREATE TABLE IF NOT EXISTS reports_report (
        job_id text PRIMARY KEY, status text NOT NULL, code text, retries bigint NOT NULL DEFAULT 0,
        begun_at double precision NOT NULL, seconds double precision, address text, sha256 text,
        answer text, model text, repairs text)""",
    # One row for each answered, and therefore paid, call of the model.
    """CREATE TABLE IF NOT EXISTS reports_call (
        job_id text NOT NULL, step text NOT NULL, model text NOT NULL, request_id text NOT NULL,
        tokens_in bigint NOT NULL, tokens_out bigint NOT NULL, estimated bigint NOT NULL, cost bigint NOT NULL,
        at double precision NOT NULL, PRIMARY KEY (job_id, step))""",
    # One row for each unusable answer. `body` is JSON text, which can hold any character.
    """CREATE TABLE IF NOT EXISTS reports_capture (
        job_id text NOT NULL, request_id text NOT NULL, schema_hash text NOT NULL, code text NOT NULL,
        at double precision NOT NULL, body text NOT NULL, PRIMARY KEY (job_id, request_id, schema_hash))""",
    "CREATE INDEX IF NOT EXISTS reports_capture_at ON reports_capture (at)",
    # Captures that an operator has approved with another schema. The next attempt uses one instead of calling
    # the model.
    """CREATE TABLE IF NOT EXISTS reports_override (
        job_id text PRIMARY KEY, request_id text NOT NULL, schema_hash text NOT NULL, body text NOT NULL)""",
    # Document versions for which the watch has enqueued reports.
    """CREATE TABLE IF NOT EXISTS reports_seen (
        address text NOT NULL, version text NOT NULL, job_id text NOT NULL, PRIMARY KEY (address, version))""",
)
