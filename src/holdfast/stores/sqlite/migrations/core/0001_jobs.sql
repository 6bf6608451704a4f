-- Jobs. Each job is one wide row. SQLite leaves no dead rows behind when a row is updated, so splitting the row, as the
-- PostgreSQL schema does, would only double the writes.
-- Times are microseconds since 1970 (UTC) by the host's clock. Columns named *_mono are microseconds of the host's monotonic
-- clock and are only valid together with session.boot.

-- A lane is the queue of one task, dependency and shard. Jobs in a fair lane take turns by owner.
CREATE TABLE holdfast_lane (
    id         INTEGER PRIMARY KEY,
    queue      TEXT NOT NULL,
    task       TEXT NOT NULL,
    dependency TEXT NOT NULL DEFAULT '',
    shard      TEXT NOT NULL DEFAULT '',
    fair       INTEGER NOT NULL DEFAULT 0,
    UNIQUE (queue, task, dependency, shard, fair)
) STRICT;

CREATE TABLE holdfast_job (
    id             INTEGER PRIMARY KEY,
    uid            TEXT NOT NULL UNIQUE,
    lane           INTEGER NOT NULL REFERENCES holdfast_lane (id),
    phase          INTEGER NOT NULL CHECK (phase BETWEEN 0 AND 5), -- 0 ready, 1 deferred, 2 processing, 3 complete, 4 failed, 5 cancelled
    prio           INTEGER NOT NULL,                               -- the negated priority: lowest first
    ord            INTEGER NOT NULL,                               -- the queue position within a priority
    run_at         INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    queued_at      INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    max_attempts   INTEGER NOT NULL,
    max_crashes    INTEGER NOT NULL,
    version        INTEGER NOT NULL,
    payload        TEXT NOT NULL,
    queued_event   INTEGER NOT NULL,                               -- seq of the event that recorded the enqueue
    generation     INTEGER NOT NULL DEFAULT 1,
    epoch          INTEGER NOT NULL DEFAULT 0,                     -- seq of the event of its last claim: it only grows
    attempt        INTEGER NOT NULL DEFAULT 0 CHECK (attempt BETWEEN 0 AND max_attempts),
    crashes        INTEGER NOT NULL DEFAULT 0,
    manual_retries INTEGER NOT NULL DEFAULT 0,
    retry_type     TEXT,
    owner          TEXT,
    key            TEXT,
    tags           TEXT,                                           -- JSON array
    trace          TEXT,
    timeout        INTEGER,
    sla            INTEGER,                                        -- the deadline as a duration, for a retry by hand
    start_within   INTEGER,
    dedupe         TEXT,
    dedupe_for     INTEGER,
    deadline_at    INTEGER,
    started_at     INTEGER,
    claimed_at     INTEGER,                                        -- when the last attempt began
    finished_at    INTEGER CHECK ((finished_at IS NOT NULL) = (phase >= 3)),
    expired_at     INTEGER,
    session        INTEGER,                                        -- the session that runs it, or ran it last
    run_until_mono INTEGER CHECK (run_until_mono IS NULL OR phase = 2),
    settle_event   INTEGER,                                        -- seq of the event that recorded the end
    error_code     TEXT CHECK ((error_code IS NOT NULL) = (phase = 4)),
    error_message  TEXT,
    last_failure   TEXT CHECK (last_failure IS NULL OR phase <> 3),
    result         TEXT CHECK (result IS NULL OR phase = 3),
    progress       TEXT CHECK (progress IS NULL OR phase = 2),
    key_slots      INTEGER,                                        -- how many jobs of its key may run at a time; null: one
    cost           REAL,                                           -- what the attempt cost that completed it; null: 1
    claimed_mono   INTEGER                                         -- when the running attempt began; meaningless once it ended
) STRICT;

CREATE INDEX holdfast_job_in_line ON holdfast_job (lane, prio, ord, id) WHERE phase = 0;
CREATE INDEX holdfast_job_leased ON holdfast_job (session) WHERE phase = 2;
CREATE INDEX holdfast_job_deadline ON holdfast_job (deadline_at) WHERE deadline_at IS NOT NULL AND phase <= 2;
CREATE INDEX holdfast_job_key ON holdfast_job (key) WHERE key IS NOT NULL AND phase = 2;
CREATE INDEX holdfast_job_owner ON holdfast_job (owner, id) WHERE owner IS NOT NULL;
-- Deferred jobs that are due. Retries are apart from first attempts, because either kind can be paused.
CREATE INDEX holdfast_job_deferred ON holdfast_job (attempt > 0, run_at) WHERE phase = 1;
-- Lists, newest first: the jobs of a key (jobs without a key cost nothing), and jobs that failed or were cancelled.
CREATE INDEX holdfast_job_by_key ON holdfast_job (key, id) WHERE key IS NOT NULL;
CREATE INDEX holdfast_job_ended_badly ON holdfast_job (phase, id) WHERE phase >= 4;
-- Retention finds the results that it has not removed yet without walking over those that it has removed.
CREATE INDEX holdfast_job_ended ON holdfast_job (phase, expired_at IS NULL, finished_at) WHERE phase >= 3;

-- The dedupe keys that are taken, by their hash.
CREATE TABLE holdfast_dedupe (
    digest TEXT PRIMARY KEY,
    job    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- A purged job leaves no dedupe key behind.
CREATE INDEX holdfast_dedupe_job ON holdfast_dedupe (job);
