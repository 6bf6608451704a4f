-- Worker sessions, and what attempts leave behind.

CREATE TABLE holdfast_session (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    worker       TEXT NOT NULL,
    boot         TEXT NOT NULL,
    ttl          INTEGER NOT NULL,
    started_at   INTEGER NOT NULL,
    expires_mono INTEGER NOT NULL,      -- 0 once it was closed
    queues       TEXT,                  -- the queues that the worker serves, as a JSON array; null: those of its tasks
    -- Handlers that wait for the results of queued jobs. It is set while such handlers hold all slots of the worker, and 0
    -- while the worker has a slot to run jobs in.
    waiting      INTEGER NOT NULL DEFAULT 0,
    version      TEXT NOT NULL          -- of Holdfast
) STRICT;

-- The attempts that did not complete. The successful attempt is recorded in the row of its job.
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
    traceback      TEXT,                                           -- the key of a row of holdfast_traceback
    cost           REAL,                                           -- null: 1
    PRIMARY KEY (job, epoch)
) STRICT, WITHOUT ROWID;
-- Retention looks for tracebacks that no attempt refers to.
CREATE INDEX holdfast_attempt_traceback ON holdfast_attempt (traceback) WHERE traceback IS NOT NULL;

-- Where failures were raised. Jobs that fail in the same way share one text. Its key is a hash of it.
CREATE TABLE holdfast_traceback (
    key  TEXT PRIMARY KEY,
    text TEXT NOT NULL,
    at   INTEGER NOT NULL               -- when a worker last reported its use; workers repeat that every hour
) STRICT, WITHOUT ROWID;

-- Failed jobs that wait for a decision.
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

-- Outcomes that came too late: the lease was lost, or the job had ended. They are kept for people and change nothing.
CREATE TABLE holdfast_late_result (
    job     INTEGER NOT NULL,
    epoch   INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    reason  TEXT NOT NULL,
    outcome TEXT NOT NULL,
    result  TEXT,
    PRIMARY KEY (job, epoch)
) STRICT, WITHOUT ROWID;

-- The results of durable steps.
CREATE TABLE holdfast_step (
    job    INTEGER NOT NULL,
    name   TEXT NOT NULL,
    result TEXT NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (job, name)
) STRICT, WITHOUT ROWID;

-- The log lines of an attempt, as a JSON array. Most attempts have none, so this is not a column of holdfast_attempt.
CREATE TABLE holdfast_attempt_log (
    job   INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    lines TEXT NOT NULL,
    PRIMARY KEY (job, epoch)
) STRICT, WITHOUT ROWID;

-- Files that attempts store outside the database. A row is recorded before its file is written, so that retention knows of
-- every file that it has to delete.
CREATE TABLE holdfast_artifact (
    job       INTEGER NOT NULL,
    epoch     INTEGER NOT NULL,
    reference TEXT NOT NULL,
    name      TEXT,                     -- null: the result
    bytes     INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (job, epoch, reference)
) STRICT, WITHOUT ROWID;
