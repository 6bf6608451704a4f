-- State is which small table holds the id: ready or deferred (queued), lease (processing), done (ended).
-- The job's own row never changes. Why this layout: docs/adr/0002-postgres-layout-and-driver.md.

-- The store's clock decides (rule 4 of docs/explanation/reliability.md), never the transaction's now(). Tests move it by the setting.
CREATE FUNCTION holdfast.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS
$$ SELECT clock_timestamp() + coalesce(nullif(current_setting('holdfast.clock_offset', true), ''), '0')::interval $$;

-- The place in line: microseconds of the store's clock.
CREATE FUNCTION holdfast.place(at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT (extract(epoch FROM at) * 1000000)::bigint $$;

-- The fence. No CACHE: cached numbers would let a later claim on another connection get a lower epoch.
CREATE SEQUENCE holdfast.epoch;
CREATE SEQUENCE holdfast.event_seq;

-- The number of an event row: a transaction's id, then a running number. It is never below the id of its own transaction,
-- so rows of a transaction that is still open are above the snapshot's xmin, and a reader that stops there misses nothing
-- (a plain sequence would: a lower number may commit later). It is not below the newest id given out when the statement
-- began either: a transaction that waited for another must not number its move before the one it waited for.
CREATE FUNCTION holdfast.event_number() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (greatest(pg_current_xact_id()::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1) << 20)
          | (nextval('holdfast.event_seq') & 1048575) $$;

CREATE TABLE holdfast.lane (
    id    int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text NOT NULL,
    task  text NOT NULL,
    UNIQUE (queue, task)
);

CREATE TABLE holdfast.job (
    id           uuid PRIMARY KEY,
    created_at   timestamptz NOT NULL,
    queued_seq   bigint NOT NULL,       -- the event that recorded it
    lane         int NOT NULL,
    prio         smallint NOT NULL,     -- the priority, negated: lowest first
    max_attempts smallint NOT NULL,
    max_crashes  smallint NOT NULL,
    version      smallint NOT NULL,
    payload      text NOT NULL,
    owner        text,
    key          text,
    tags         text[],
    trace        text,
    timeout      interval,
    sla          interval,              -- the deadline as a duration, for the next generation
    start_within interval,
    dedupe       bytea,
    dedupe_for   interval,
    deadline_at  timestamptz
);
CREATE INDEX job_owner ON holdfast.job (owner, id) WHERE owner IS NOT NULL;

-- Insert and delete only, never updated: that makes "lock by index, delete by ctid" safe. The primary key's order is
-- exactly the claim's ORDER BY.
CREATE TABLE holdfast.ready (
    ord         bigint NOT NULL,
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

-- Due later. 'infinity' waits for its key, not for a time.
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
    PRIMARY KEY (run_at, id)
);
CREATE INDEX deferred_deadline ON holdfast.deferred (deadline_at) WHERE deadline_at IS NOT NULL;
CREATE INDEX deferred_key ON holdfast.deferred (key, run_at) WHERE key IS NOT NULL;

-- Who may go: the one job of each key that is in line or processing.
CREATE TABLE holdfast.key_slot (
    key    text PRIMARY KEY,
    job_id uuid NOT NULL UNIQUE
);

-- What is in flight: small, so a sweep may walk it.
CREATE TABLE holdfast.lease (
    job_id      uuid PRIMARY KEY,
    epoch       bigint NOT NULL,
    session_id  bigint NOT NULL,
    claim_seq   bigint NOT NULL,
    claimed_at  timestamptz NOT NULL,
    lane        int NOT NULL,
    prio        smallint NOT NULL,
    attempt     smallint NOT NULL,
    crashes     smallint NOT NULL,
    generation  smallint NOT NULL,
    run_at      timestamptz,
    run_until   timestamptz,            -- the hard timeout: no heartbeat moves it
    deadline_at timestamptz,
    key         text,
    progress    jsonb
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
CREATE INDEX lease_deadline ON holdfast.lease (deadline_at) WHERE deadline_at IS NOT NULL;

-- The end of a job; of a complete one it is the record of the successful attempt too.
CREATE TABLE holdfast.done (
    job_id        uuid PRIMARY KEY,
    state         smallint NOT NULL CHECK (state BETWEEN 3 AND 5),    -- 3 complete, 4 failed, 5 cancelled
    epoch         bigint NOT NULL,
    session_id    bigint,
    claim_seq     bigint,
    settle_seq    bigint,
    started_at    timestamptz,          -- of the attempt that completed
    finished_at   timestamptz NOT NULL,
    attempt       smallint NOT NULL,
    crashes       smallint NOT NULL,
    generation    smallint NOT NULL,
    run_at        timestamptz,
    expired_at    timestamptz,
    error_code    text CHECK ((error_code IS NOT NULL) = (state = 4)),
    error_message text,
    result        text CHECK (result IS NULL OR state = 3)
);
CREATE INDEX done_ended ON holdfast.done (finished_at) WHERE state <> 3;

-- Attempts that did not complete.
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
    PRIMARY KEY (job_id, epoch)
);

-- Only jobs that a person has retried: what their newest generation has of its own.
CREATE TABLE holdfast.life (
    job_id         uuid PRIMARY KEY,
    generation     smallint NOT NULL,
    queued_at      timestamptz NOT NULL,
    deadline_at    timestamptz,
    lane           int NOT NULL,
    manual_retries int NOT NULL,
    manual_epoch   bigint NOT NULL      -- the newest epoch when a person last retried it
);

CREATE TABLE holdfast.session (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    worker     text NOT NULL,
    ttl        interval NOT NULL,
    started_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

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

CREATE TABLE holdfast.late_result (
    job_id  uuid NOT NULL,
    epoch   bigint NOT NULL,
    at      timestamptz NOT NULL,
    reason  text NOT NULL,
    outcome text NOT NULL,
    result  text,
    PRIMARY KEY (job_id, epoch)
);

CREATE TABLE holdfast.step (
    job_id uuid NOT NULL,
    name   text NOT NULL,
    result text NOT NULL,
    at     timestamptz NOT NULL,
    PRIMARY KEY (job_id, name)
);

CREATE TABLE holdfast.dedupe (
    digest bytea PRIMARY KEY,
    job_id uuid NOT NULL
);
CREATE INDEX dedupe_job ON holdfast.dedupe (job_id);

-- One row records the same move of many jobs. Jobs, leases, attempts and ends point at their rows, so the history of
-- one job needs no index over the arrays; a rare move of a single job has its id in job_id.
-- toast_tuple_target keeps batches of up to some 300 jobs in the row; pglz on ids would cost CPU and save little.
CREATE TABLE holdfast.event (
    seq        bigint PRIMARY KEY,
    at         timestamptz NOT NULL,
    session_id bigint,
    kind       smallint NOT NULL,
    job_ids    uuid[] NOT NULL,
    epochs     bigint[],
    attempts   smallint[],
    durations  int[],                   -- milliseconds
    metas      jsonb[],
    job_id     uuid
) WITH (toast_tuple_target = 8160);
ALTER TABLE holdfast.event ALTER job_ids SET STORAGE EXTERNAL, ALTER epochs SET STORAGE EXTERNAL,
    ALTER attempts SET STORAGE EXTERNAL, ALTER durations SET STORAGE EXTERNAL;
CREATE INDEX event_job ON holdfast.event (job_id) WHERE job_id IS NOT NULL;

-- One argument of a stored call; null where the payload cannot be read: a damaged row must not stop a search.
CREATE FUNCTION holdfast.argument(payload text, name text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (payload::json -> name)::text::jsonb;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;

-- The number of a lane, made if need be.
CREATE FUNCTION holdfast.lane_number(a_queue text, a_task text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE found_id int;
BEGIN
    SELECT id INTO found_id FROM holdfast.lane WHERE queue = a_queue AND task = a_task;
    IF found_id IS NULL THEN
        INSERT INTO holdfast.lane (queue, task) VALUES (a_queue, a_task) ON CONFLICT DO NOTHING;
        SELECT id INTO found_id FROM holdfast.lane WHERE queue = a_queue AND task = a_task;
    END IF;
    RETURN found_id;
END $$;

-- The row as people know it.
CREATE VIEW holdfast.jobs AS
SELECT j.id, n.task, n.queue, j.owner, -j.prio AS priority,
       CASE WHEN f.state = 3 THEN 'complete' WHEN f.state = 4 THEN 'failed' WHEN f.state = 5 THEN 'cancelled'
            WHEN l.job_id IS NOT NULL THEN 'processing' ELSE 'queued' END AS state,
       coalesce(g.generation, 1) AS generation,
       coalesce(l.epoch, f.epoch, a.epoch, 0) AS epoch,
       coalesce(r.attempt, d.attempt, l.attempt, f.attempt, 0) AS attempt,
       j.max_attempts,
       coalesce(r.crashes, d.crashes, l.crashes, f.crashes, 0) AS crashes,
       coalesce(CASE WHEN isfinite(d.run_at) THEN d.run_at END, r.run_at, l.run_at, f.run_at, g.queued_at, j.created_at) AS run_at,
       j.created_at,
       coalesce(g.queued_at, j.created_at) AS queued_at,
       coalesce((SELECT min(x.started_at) FROM holdfast.attempt x
                  WHERE x.job_id = j.id AND x.generation = coalesce(g.generation, 1)), l.claimed_at, f.started_at) AS started_at,
       f.finished_at,
       coalesce(l.claimed_at, f.started_at, a.started_at) AS last_attempt_at,
       greatest(j.created_at, g.queued_at, a.ended_at, l.claimed_at, f.finished_at, f.expired_at) AS updated_at,
       CASE WHEN g.job_id IS NULL THEN j.deadline_at ELSE g.deadline_at END AS deadline_at,
       f.expired_at,
       s.worker AS leased_by,
       least(s.expires_at, l.run_until) AS lease_expires_at,
       f.error_code, f.error_message,
       CASE WHEN f.state IS DISTINCT FROM 3 THEN
            (SELECT jsonb_build_object('code', x.failure ->> 'code', 'message', x.failure ->> 'message', 'at', x.ended_at,
                                       'attempt', x.attempt)
               FROM holdfast.attempt x
              WHERE x.job_id = j.id AND x.failure IS NOT NULL AND x.outcome <> 'timed_out' ORDER BY x.epoch DESC LIMIT 1) END AS last_failure,
       CASE WHEN EXISTS (SELECT FROM holdfast.attempt x
                          WHERE x.job_id = j.id AND x.epoch > coalesce(g.manual_epoch, 0) AND x.outcome IN ('retry', 'reclaimed')
                            AND (f.state IS NULL OR x.epoch < f.epoch OR f.state = 3))
            THEN 'AUTOMATIC' WHEN g.manual_retries > 0 THEN 'MANUAL' END AS retry_type,
       coalesce(g.manual_retries, 0) AS manual_retry_count,
       f.result, coalesce(j.tags, '{}') AS tags, j.payload, l.progress, j.key
  FROM holdfast.job j
  LEFT JOIN holdfast.life g ON g.job_id = j.id
  JOIN holdfast.lane n ON n.id = coalesce(g.lane, j.lane)
  LEFT JOIN holdfast.ready r ON r.id = j.id
  LEFT JOIN holdfast.deferred d ON d.id = j.id
  LEFT JOIN holdfast.lease l ON l.job_id = j.id
  LEFT JOIN holdfast.session s ON s.id = l.session_id
  LEFT JOIN holdfast.done f ON f.job_id = j.id
  LEFT JOIN LATERAL (SELECT x.epoch, x.started_at, x.ended_at FROM holdfast.attempt x
                      WHERE x.job_id = j.id ORDER BY x.epoch DESC LIMIT 1) a ON true;
