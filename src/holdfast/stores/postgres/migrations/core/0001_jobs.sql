-- Jobs, and the small tables that say which state a job is in.
-- The row of a job is never updated. Its state is the table that holds its id: ready or deferred (queued), lease
-- (processing), done (complete, failed or cancelled). ADR 0002 gives the reasons.

-- The store's clock. All decisions about time use it, and never the transaction's now() (rule 4 of
-- docs/explanation/reliability.md). Tests shift it with the setting.
CREATE FUNCTION holdfast.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS
$$ SELECT clock_timestamp() + coalesce(nullif(current_setting('holdfast.clock_offset', true), ''), '0')::interval $$;

-- The queue position of a job that is due at this moment: microseconds of the store's clock.
-- STABLE like extract(): the planner does not inline a function that promises more than its body.
CREATE FUNCTION holdfast.place(at timestamptz) RETURNS bigint LANGUAGE sql STABLE AS
$$ SELECT (extract(epoch FROM at) * 1000000)::bigint $$;

-- The fence: every claim takes the next number. There is no CACHE. A connection that caches numbers could give a later
-- claim a lower epoch.
CREATE SEQUENCE holdfast.epoch;

-- A lane is the queue of one task, dependency and shard. Jobs in a fair lane take turns by owner.
CREATE TABLE holdfast.lane (
    id         int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue      text NOT NULL,
    task       text NOT NULL,
    dependency text NOT NULL DEFAULT '',
    shard      text NOT NULL DEFAULT '',
    fair       boolean NOT NULL DEFAULT false,
    UNIQUE (queue, task, dependency, shard, fair)
);

CREATE TABLE holdfast.job (
    id           uuid PRIMARY KEY,
    created_at   timestamptz NOT NULL,
    queued_seq   bigint NOT NULL,       -- the event that recorded the enqueue
    lane         int NOT NULL,
    prio         smallint NOT NULL,     -- the negated priority: lowest first
    max_attempts smallint NOT NULL,
    max_crashes  smallint NOT NULL,
    version      smallint NOT NULL,
    payload      text NOT NULL,
    owner        text,
    key          text,
    tags         text[],
    trace        text,
    timeout      interval,
    sla          interval,              -- the deadline as a duration, for a retry by hand
    start_within interval,
    dedupe       bytea,
    dedupe_for   interval,
    deadline_at  timestamptz,
    key_slots    smallint               -- how many jobs of its key may be ready or processing at a time; null: one
);
CREATE INDEX job_owner ON holdfast.job (owner, id) WHERE owner IS NOT NULL;
-- Lists the jobs of a key, newest first. Jobs without a key cost nothing here.
CREATE INDEX job_key ON holdfast.job (key, id) WHERE key IS NOT NULL;

-- Queued and due. Rows are only inserted and deleted. An update could move a row between the two steps of a claim, which
-- locks rows by index and then deletes them by ctid. The primary key has the order of the claim's ORDER BY.
CREATE TABLE holdfast.ready (
    ord         bigint NOT NULL,        -- the queue position
    id          uuid NOT NULL UNIQUE,
    lane        int NOT NULL,
    prio        smallint NOT NULL,
    attempt     smallint NOT NULL,
    crashes     smallint NOT NULL,
    generation  smallint NOT NULL,
    run_at      timestamptz,            -- null: due since it was queued
    deadline_at timestamptz,
    key         text,
    PRIMARY KEY (lane, prio, ord, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
CREATE INDEX ready_deadline ON holdfast.ready (deadline_at) WHERE deadline_at IS NOT NULL;

-- Queued and due later. A job with run_at 'infinity' waits for its key, not for a time.
CREATE TABLE holdfast.deferred (
    run_at      timestamptz NOT NULL,
    id          uuid NOT NULL UNIQUE,
    lane        int NOT NULL,
    prio        smallint NOT NULL,
    attempt     smallint NOT NULL,
    crashes     smallint NOT NULL,
    generation  smallint NOT NULL,
    deadline_at timestamptz,
    key         text,
    -- It was due when it came here and waits for its key only. A pause of delayed jobs does not concern it.
    at_once     boolean NOT NULL DEFAULT false,
    PRIMARY KEY (run_at, id)
);
CREATE INDEX deferred_deadline ON holdfast.deferred (deadline_at) WHERE deadline_at IS NOT NULL;
-- The order in which the jobs of a key get their turn.
CREATE INDEX deferred_turn ON holdfast.deferred (key, prio, id) WHERE key IS NOT NULL;

-- The jobs of each key that are ready or processing.
CREATE TABLE holdfast.key_slot (
    key    text NOT NULL,
    job_id uuid NOT NULL UNIQUE,
    n      smallint NOT NULL DEFAULT 1,
    PRIMARY KEY (key, n)
);

-- Processing. The table stays small, so a sweep may read all of it.
CREATE TABLE holdfast.lease (
    job_id      uuid PRIMARY KEY,
    epoch       bigint NOT NULL,
    session_id  bigint NOT NULL,
    claim_seq   bigint NOT NULL,        -- the event that recorded the claim
    claimed_at  timestamptz NOT NULL,
    lane        int NOT NULL,
    prio        smallint NOT NULL,
    attempt     smallint NOT NULL,
    crashes     smallint NOT NULL,
    generation  smallint NOT NULL,
    run_at      timestamptz,
    run_until   timestamptz,            -- the hard timeout: a heartbeat does not extend it
    deadline_at timestamptz,
    key         text,
    progress    jsonb
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
CREATE INDEX lease_deadline ON holdfast.lease (deadline_at) WHERE deadline_at IS NOT NULL;

-- Complete, failed or cancelled. The row of a complete job is also the record of its successful attempt.
CREATE TABLE holdfast.done (
    job_id        uuid PRIMARY KEY,
    state         smallint NOT NULL CHECK (state BETWEEN 3 AND 5),    -- 3 complete, 4 failed, 5 cancelled
    epoch         bigint NOT NULL,
    session_id    bigint,
    claim_seq     bigint,
    settle_seq    bigint,               -- the event that recorded the end
    started_at    timestamptz,          -- of the attempt that completed
    finished_at   timestamptz NOT NULL,
    attempt       smallint NOT NULL,
    crashes       smallint NOT NULL,
    generation    smallint NOT NULL,
    run_at        timestamptz,
    expired_at    timestamptz,
    error_code    text CHECK ((error_code IS NOT NULL) = (state = 4)),
    error_message text,
    result        text CHECK (result IS NULL OR state = 3),
    cost          float8                -- what the attempt cost that completed it; null: 1
);
CREATE INDEX done_ended ON holdfast.done (finished_at) WHERE state <> 3;
-- Lists failed and cancelled jobs, newest first.
CREATE INDEX done_badly ON holdfast.done (state, job_id) INCLUDE (error_code) WHERE state <> 3;

-- The newest generation of a job that a person has retried. Other jobs have no row here.
CREATE TABLE holdfast.life (
    job_id         uuid PRIMARY KEY,
    generation     smallint NOT NULL,
    queued_at      timestamptz NOT NULL,
    deadline_at    timestamptz,
    lane           int NOT NULL,
    manual_retries int NOT NULL,
    manual_epoch   bigint NOT NULL      -- the newest epoch when a person last retried the job
);

-- The dedupe keys that are taken, by their hash.
CREATE TABLE holdfast.dedupe (
    digest bytea PRIMARY KEY,
    job_id uuid NOT NULL
);
-- A purged job leaves no dedupe key behind.
CREATE INDEX dedupe_job ON holdfast.dedupe (job_id);

-- One argument of a stored call. Returns null when the payload cannot be parsed, because one damaged row must not stop a
-- search.
CREATE FUNCTION holdfast.argument(payload text, name text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (payload::json -> name)::text::jsonb;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;
