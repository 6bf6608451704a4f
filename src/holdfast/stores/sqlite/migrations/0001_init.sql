-- One wide row per job: SQLite has no dead rows to fear, so splitting it would only double the writes.
-- Times are microseconds since 1970 (UTC) by the host's clock; the two *_mono columns are microseconds of the
-- host's monotonic clock, valid only together with session.boot.

CREATE TABLE holdfast_lane (
    id    INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    task  TEXT NOT NULL,
    UNIQUE (queue, task)
) STRICT;

CREATE TABLE holdfast_job (
    id             INTEGER PRIMARY KEY,
    uid            TEXT NOT NULL UNIQUE,
    lane           INTEGER NOT NULL REFERENCES holdfast_lane (id),
    phase          INTEGER NOT NULL CHECK (phase BETWEEN 0 AND 5), -- 0 in line, 1 deferred, 2 processing, 3 complete, 4 failed, 5 cancelled
    prio           INTEGER NOT NULL,                               -- the priority, negated: lowest first
    ord            INTEGER NOT NULL,                               -- the place in line within a priority
    run_at         INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    queued_at      INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    max_attempts   INTEGER NOT NULL,
    max_crashes    INTEGER NOT NULL,
    version        INTEGER NOT NULL,
    payload        TEXT NOT NULL,
    queued_event   INTEGER NOT NULL,                               -- seq of the event that recorded it
    generation     INTEGER NOT NULL DEFAULT 1,
    epoch          INTEGER NOT NULL DEFAULT 0,                     -- seq of the event of its last claim: only grows
    attempt        INTEGER NOT NULL DEFAULT 0 CHECK (attempt BETWEEN 0 AND max_attempts),
    crashes        INTEGER NOT NULL DEFAULT 0,
    manual_retries INTEGER NOT NULL DEFAULT 0,
    retry_type     TEXT,
    owner          TEXT,
    key            TEXT,
    tags           TEXT,                                           -- JSON array
    trace          TEXT,
    timeout        INTEGER,
    sla            INTEGER,                                        -- the deadline as a duration, for the next generation
    start_within   INTEGER,
    dedupe         TEXT,
    dedupe_for     INTEGER,
    deadline_at    INTEGER,
    started_at     INTEGER,
    claimed_at     INTEGER,                                        -- when the last attempt began
    finished_at    INTEGER CHECK ((finished_at IS NOT NULL) = (phase >= 3)),
    expired_at     INTEGER,
    session        INTEGER,                                        -- who runs it, or ran it last
    run_until_mono INTEGER CHECK (run_until_mono IS NULL OR phase = 2),
    settle_event   INTEGER,
    error_code     TEXT CHECK ((error_code IS NOT NULL) = (phase = 4)),
    error_message  TEXT,
    last_failure   TEXT CHECK (last_failure IS NULL OR phase <> 3),
    result         TEXT CHECK (result IS NULL OR phase = 3),
    progress       TEXT CHECK (progress IS NULL OR phase = 2)
) STRICT;

CREATE INDEX holdfast_job_in_line ON holdfast_job (lane, prio, ord, id) WHERE phase = 0;
CREATE INDEX holdfast_job_deferred ON holdfast_job (run_at) WHERE phase = 1;
CREATE INDEX holdfast_job_leased ON holdfast_job (session) WHERE phase = 2;
CREATE INDEX holdfast_job_ended ON holdfast_job (phase, finished_at) WHERE phase >= 3;
CREATE INDEX holdfast_job_deadline ON holdfast_job (deadline_at) WHERE deadline_at IS NOT NULL AND phase <= 2;
CREATE INDEX holdfast_job_key ON holdfast_job (key) WHERE key IS NOT NULL AND phase = 2;
CREATE INDEX holdfast_job_owner ON holdfast_job (owner, id) WHERE owner IS NOT NULL;

CREATE TABLE holdfast_session (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    worker       TEXT NOT NULL,
    boot         TEXT NOT NULL,
    ttl          INTEGER NOT NULL,
    started_at   INTEGER NOT NULL,
    expires_mono INTEGER NOT NULL                                  -- 0 once it was closed
) STRICT;

-- An attempt is written down when it ends without completing; the one that completed is in the job's own row.
CREATE TABLE holdfast_attempt (
    job            INTEGER NOT NULL,
    epoch          INTEGER NOT NULL,
    generation     INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    session        INTEGER,
    started_at     INTEGER NOT NULL,
    ended_at       INTEGER NOT NULL,
    outcome        TEXT NOT NULL,
    failure        TEXT,                                           -- JSON
    settle_event   INTEGER,
    refused        INTEGER NOT NULL DEFAULT 0,                     -- a stale write under this lease was refused
    PRIMARY KEY (job, epoch)
) STRICT, WITHOUT ROWID;

CREATE TABLE holdfast_dead_letter (
    job         INTEGER PRIMARY KEY,
    code        TEXT NOT NULL,
    message     TEXT NOT NULL,
    detail      TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    attempts    INTEGER NOT NULL,
    at          INTEGER NOT NULL
) STRICT;
CREATE INDEX holdfast_dead_letter_cause ON holdfast_dead_letter (fingerprint);

CREATE TABLE holdfast_late_result (
    job     INTEGER NOT NULL,
    epoch   INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    reason  TEXT NOT NULL,
    outcome TEXT NOT NULL,
    result  TEXT,
    PRIMARY KEY (job, epoch)
) STRICT, WITHOUT ROWID;

CREATE TABLE holdfast_step (
    job    INTEGER NOT NULL,
    name   TEXT NOT NULL,
    result TEXT NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (job, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE holdfast_dedupe (
    digest TEXT PRIMARY KEY,
    job    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row records the same move of many jobs: [[uid, epoch, attempt, meta], …]. The jobs and attempts point at
-- their rows (queued_event, epoch, settle_event), so the history of one job needs no index here. A rare move of
-- a single job has its uid in *job* and is found by the index.
CREATE TABLE holdfast_event (
    seq   INTEGER PRIMARY KEY,                                    -- never used twice: the newest row is never purged
    at    INTEGER NOT NULL,
    kind  INTEGER NOT NULL,
    job   TEXT,
    moves TEXT NOT NULL
) STRICT;
CREATE INDEX holdfast_event_job ON holdfast_event (job) WHERE job IS NOT NULL;

-- The row as people know it.
CREATE VIEW holdfast_jobs AS
SELECT j.uid AS id, l.task, l.queue, j.owner, -j.prio AS priority,
       CASE j.phase WHEN 0 THEN 'queued' WHEN 1 THEN 'queued' WHEN 2 THEN 'processing'
                    WHEN 3 THEN 'complete' WHEN 4 THEN 'failed' ELSE 'cancelled' END AS state,
       j.generation, j.epoch, j.attempt, j.max_attempts, j.crashes, j.run_at, j.created_at, j.queued_at,
       j.started_at, j.finished_at, j.claimed_at AS last_attempt_at, j.updated_at, j.deadline_at, j.expired_at,
       CASE j.phase WHEN 2 THEN s.worker END AS leased_by,
       CASE j.phase WHEN 2 THEN min(s.expires_mono, coalesce(j.run_until_mono, s.expires_mono)) END AS lease_expires_mono,
       j.error_code, j.error_message, j.last_failure, j.retry_type, j.manual_retries AS manual_retry_count,
       j.result, j.tags, j.payload, j.progress, j.key, j.id AS number
  FROM holdfast_job j JOIN holdfast_lane l ON l.id = j.lane LEFT JOIN holdfast_session s ON s.id = j.session;

CREATE VIEW holdfast_events AS
SELECT e.seq * 10000 + m.key AS id, e.at, e.kind, m.value ->> 0 AS job_id, m.value ->> 1 AS epoch,
       m.value ->> 2 AS attempt, m.value -> 3 AS meta
  FROM holdfast_event e, json_each(e.moves) m;

-- The plain names too, where the user's own tables have not taken them.
CREATE VIEW IF NOT EXISTS jobs AS SELECT * FROM holdfast_jobs;
CREATE VIEW IF NOT EXISTS events AS SELECT * FROM holdfast_events;
