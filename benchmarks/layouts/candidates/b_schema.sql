-- Layout B: split tables, one row per event, an attempt row for every dispatch.
DROP SCHEMA IF EXISTS holdfast CASCADE;
CREATE SCHEMA holdfast;


CREATE SEQUENCE holdfast.epoch;
CREATE SEQUENCE holdfast.event_seq;


CREATE SEQUENCE holdfast.job_block INCREMENT 1000;


CREATE TABLE holdfast.job (
    id          bigint NOT NULL,
    created_at  timestamptz NOT NULL,
    lane        int NOT NULL,
    kind        int NOT NULL,
    prio        smallint NOT NULL,
    payload     bytea NOT NULL,
    PRIMARY KEY (id)
);



CREATE TABLE holdfast.ready (
    ord       bigint NOT NULL,
    id        bigint NOT NULL,
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
    id        bigint NOT NULL,
    ord       bigint NOT NULL,
    lane      int NOT NULL,
    attempt   int NOT NULL,
    prio      smallint NOT NULL,
    failures  smallint NOT NULL,
    crashes   smallint NOT NULL,
    why       smallint NOT NULL,
    PRIMARY KEY (run_at, id)
);


CREATE TABLE holdfast.lease (
    job_id      bigint NOT NULL,
    epoch       bigint NOT NULL,
    session_id  bigint NOT NULL,
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


CREATE TABLE holdfast.done (
    job_id       bigint NOT NULL,
    epoch        bigint NOT NULL,
    finished_at  timestamptz NOT NULL,
    attempt      int NOT NULL,
    result       bytea,
    PRIMARY KEY (job_id)
);


CREATE TABLE holdfast.attempt (
    job_id      bigint NOT NULL,
    epoch       bigint NOT NULL,
    session_id  bigint NOT NULL,
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





CREATE TABLE holdfast.event (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(), job_id bigint NOT NULL, epoch bigint, at timestamptz NOT NULL,
    attempt int, kind smallint NOT NULL);
CREATE INDEX event_job ON holdfast.event (job_id);
DROP TABLE IF EXISTS holdfast.attempt;
CREATE TABLE holdfast.attempt (job_id bigint NOT NULL, epoch bigint NOT NULL, session_id bigint NOT NULL,
    started_at timestamptz NOT NULL, ended_at timestamptz NOT NULL, attempt int NOT NULL, outcome smallint NOT NULL,
    error text, PRIMARY KEY (job_id, epoch));
