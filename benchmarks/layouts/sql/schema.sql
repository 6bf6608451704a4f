-- Layout C: split tables, batched events. State = which small table holds the id.
-- `/*id*/bigint` marks the key type: the experiment swaps it for uuid.
DROP SCHEMA IF EXISTS holdfast CASCADE;
CREATE SCHEMA holdfast;

-- Fencing token. No CACHE: cached values would let a later claim on another connection get a lower epoch.
CREATE SEQUENCE holdfast.epoch;
CREATE SEQUENCE holdfast.event_seq;
-- Clients take ids in blocks: nextval() = the first id of a block of 1000. The id is known before the first
-- send, so a repeated enqueue is recognised by its primary key.
CREATE SEQUENCE holdfast.job_block INCREMENT 1000;

-- Never updated. queued_seq points at the event that recorded the enqueue.
CREATE TABLE holdfast.job (
    id          /*id*/bigint NOT NULL,
    created_at  timestamptz NOT NULL,
    queued_seq  bigint NOT NULL,
    lane        int NOT NULL,
    kind        int NOT NULL,
    prio        smallint NOT NULL,
    payload     bytea NOT NULL,
    PRIMARY KEY (id)
);

-- Insert and delete only, never updated: that makes "lock by index, delete by ctid" safe.
-- Wide columns first: no padding. The primary key's order is exactly the claim's ORDER BY.
CREATE TABLE holdfast.ready (
    ord       bigint NOT NULL,
    id        /*id*/bigint NOT NULL,
    lane      int NOT NULL,
    attempt   int NOT NULL,
    prio      smallint NOT NULL,
    failures  smallint NOT NULL,
    crashes   smallint NOT NULL,
    PRIMARY KEY (lane, prio, ord, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);

CREATE TABLE holdfast.deferred (
    run_at    timestamptz NOT NULL,
    id        /*id*/bigint NOT NULL,
    ord       bigint NOT NULL,
    lane      int NOT NULL,
    attempt   int NOT NULL,
    prio      smallint NOT NULL,
    failures  smallint NOT NULL,
    crashes   smallint NOT NULL,
    why       smallint NOT NULL,
    PRIMARY KEY (run_at, id)
);

-- Primary key only: the in-flight set is small, sweeps may scan it.
CREATE TABLE holdfast.lease (
    job_id      /*id*/bigint NOT NULL,
    epoch       bigint NOT NULL,
    session_id  bigint NOT NULL,
    claim_seq   bigint NOT NULL,
    ord         bigint NOT NULL,
    claimed_at  timestamptz NOT NULL,
    run_until   timestamptz,
    lane        int NOT NULL,
    attempt     int NOT NULL,
    prio        smallint NOT NULL,
    failures    smallint NOT NULL,
    crashes     smallint NOT NULL,
    PRIMARY KEY (job_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);

-- The end of a job and its successful attempt in one row (epoch answers a repeated completion).
CREATE TABLE holdfast.done (
    job_id       /*id*/bigint NOT NULL,
    epoch        bigint NOT NULL,
    session_id   bigint NOT NULL,
    claim_seq    bigint NOT NULL,
    done_seq     bigint NOT NULL,
    started_at   timestamptz NOT NULL,
    finished_at  timestamptz NOT NULL,
    attempt      int NOT NULL,
    result       bytea,
    PRIMARY KEY (job_id)
);

-- Attempts that did not succeed: failed, crashed, released.
CREATE TABLE holdfast.attempt (
    job_id      /*id*/bigint NOT NULL,
    epoch       bigint NOT NULL,
    session_id  bigint NOT NULL,
    claim_seq   bigint NOT NULL,
    settle_seq  bigint NOT NULL,
    started_at  timestamptz NOT NULL,
    ended_at    timestamptz NOT NULL,
    attempt     int NOT NULL,
    outcome     smallint NOT NULL,
    error       text,
    PRIMARY KEY (job_id, epoch)
);

CREATE TABLE holdfast.session (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    worker      text NOT NULL,
    expires_at  timestamptz NOT NULL
) WITH (fillfactor = 50);

-- One row per statement and kind. A reader of the whole log goes by (xid, seq) and stops before the oldest running
-- transaction (event_feed.sql); by seq alone it would miss rows, for a lower seq may commit later.
-- toast_tuple_target: a batch of up to about 380 jobs stays in the row. EXTERNAL: pglz on ids costs CPU, saves little.
CREATE TABLE holdfast.event (
    seq         bigint NOT NULL DEFAULT nextval('holdfast.event_seq') PRIMARY KEY,
    xid         xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at          timestamptz NOT NULL,
    session_id  bigint,
    kind        smallint NOT NULL,
    job_ids     /*id*/bigint[] NOT NULL,
    epochs      bigint[],
    attempts    int[]
) WITH (toast_tuple_target = 8160);
ALTER TABLE holdfast.event ALTER job_ids SET STORAGE EXTERNAL, ALTER epochs SET STORAGE EXTERNAL,
    ALTER attempts SET STORAGE EXTERNAL;
CREATE INDEX event_feed ON holdfast.event (xid, seq);
