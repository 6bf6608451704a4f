-- Worker sessions, and what attempts leave behind.

CREATE TABLE holdfast.session (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    worker     text NOT NULL,
    ttl        interval NOT NULL,
    started_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    queues     text[],                  -- the queues that the worker serves; null: those of its tasks
    -- Handlers that wait for the results of queued jobs. It is set while such handlers hold all slots of the worker, and 0
    -- while the worker has a slot to run jobs in.
    waiting    integer NOT NULL DEFAULT 0,
    version    text NOT NULL            -- of Holdfast
) WITH (fillfactor = 50);

-- The attempts that did not complete.
CREATE TABLE holdfast.attempt (
    job_id     uuid NOT NULL,
    epoch      bigint NOT NULL,
    session_id bigint NOT NULL,
    claim_seq  bigint NOT NULL,
    settle_seq bigint,
    started_at timestamptz NOT NULL,
    ended_at   timestamptz NOT NULL,
    attempt    smallint NOT NULL,
    generation smallint NOT NULL,
    refused    boolean NOT NULL DEFAULT false,    -- a stale write under this lease was refused
    outcome    text NOT NULL,
    failure    jsonb,
    traceback  text,                    -- the key of a row of `traceback`
    cost       float8,                  -- null: 1
    PRIMARY KEY (job_id, epoch)
);
-- Retention looks for tracebacks that no attempt refers to.
CREATE INDEX attempt_traceback ON holdfast.attempt (traceback) WHERE traceback IS NOT NULL;

-- Where failures were raised. Jobs that fail in the same way share one text. Its key is a hash of it.
CREATE TABLE holdfast.traceback (
    key  text PRIMARY KEY,
    text text NOT NULL,
    at   timestamptz NOT NULL           -- when a worker last reported its use; workers repeat that every hour
);

-- Failed jobs that wait for a decision.
CREATE TABLE holdfast.dead_letter (
    job_id      uuid PRIMARY KEY,
    at          timestamptz NOT NULL,
    lane        int NOT NULL,
    attempts    smallint NOT NULL,
    code        text NOT NULL,
    message     text NOT NULL,
    detail      text NOT NULL,
    fingerprint text NOT NULL
);
CREATE INDEX dead_letter_cause ON holdfast.dead_letter (fingerprint);

-- Outcomes that came too late: the lease was lost, or the job had ended. They are kept for people and change nothing.
CREATE TABLE holdfast.late_result (
    job_id  uuid NOT NULL,
    epoch   bigint NOT NULL,
    at      timestamptz NOT NULL,
    reason  text NOT NULL,
    outcome text NOT NULL,
    result  text,
    PRIMARY KEY (job_id, epoch)
);

-- The results of durable steps.
CREATE TABLE holdfast.step (
    job_id uuid NOT NULL,
    name   text NOT NULL,
    result text NOT NULL,
    at     timestamptz NOT NULL,
    PRIMARY KEY (job_id, name)
);

-- The log lines of an attempt, as a JSON array. Most attempts have none, so this is not a column of `attempt`.
CREATE TABLE holdfast.attempt_log (
    job_id uuid NOT NULL,
    epoch  bigint NOT NULL,
    lines  text NOT NULL,
    PRIMARY KEY (job_id, epoch)
);

-- Files that attempts store outside the database. A row is recorded before its file is written, so that retention knows of
-- every file that it has to delete.
CREATE TABLE holdfast.artifact (
    job_id    uuid NOT NULL,
    epoch     bigint NOT NULL,
    reference text NOT NULL,
    name      text,                     -- null: the result
    bytes     bigint NOT NULL,
    at        timestamptz NOT NULL,
    PRIMARY KEY (job_id, epoch, reference)
);
