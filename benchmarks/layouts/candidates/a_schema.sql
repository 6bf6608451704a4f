-- Layout A: one wide row updated in place, partial indexes, one row per event, an attempt row per dispatch.
DROP SCHEMA IF EXISTS holdfast CASCADE; CREATE SCHEMA holdfast;
CREATE SEQUENCE holdfast.epoch;
CREATE TABLE holdfast.job (id bigint PRIMARY KEY, ord bigint NOT NULL, epoch bigint, session_id bigint,
    created_at timestamptz NOT NULL, run_at timestamptz, claimed_at timestamptz, run_until timestamptz,
    finished_at timestamptz, lane int NOT NULL, kind int NOT NULL, attempt int NOT NULL DEFAULT 0,
    prio smallint NOT NULL, state smallint NOT NULL DEFAULT 0, failures smallint NOT NULL DEFAULT 0,
    crashes smallint NOT NULL DEFAULT 0, payload bytea NOT NULL, result bytea)
    WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.05);
CREATE INDEX job_ready ON holdfast.job (lane, prio, ord, id) WHERE state = 0;
CREATE INDEX job_due ON holdfast.job (run_at, id) WHERE state = 1;
CREATE INDEX job_lease ON holdfast.job (session_id) WHERE state = 2;
CREATE TABLE holdfast.session (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, worker text NOT NULL,
    expires_at timestamptz NOT NULL) WITH (fillfactor=50);

CREATE TABLE holdfast.event (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(), job_id bigint NOT NULL, epoch bigint, at timestamptz NOT NULL,
    attempt int, kind smallint NOT NULL);
CREATE INDEX event_job ON holdfast.event (job_id);
DROP TABLE IF EXISTS holdfast.attempt;
CREATE TABLE holdfast.attempt (job_id bigint NOT NULL, epoch bigint NOT NULL, session_id bigint NOT NULL,
    started_at timestamptz NOT NULL, ended_at timestamptz NOT NULL, attempt int NOT NULL, outcome smallint NOT NULL,
    error text, PRIMARY KEY (job_id, epoch));
