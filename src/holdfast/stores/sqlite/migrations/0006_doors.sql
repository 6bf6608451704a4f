-- What the front doors keep.

-- Keys: the secret itself is nowhere, only its SHA-256.
CREATE TABLE holdfast_access_key (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    role         TEXT NOT NULL,
    owner        TEXT,
    digest       BLOB NOT NULL UNIQUE,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    revoked_at   INTEGER,
    last_used_at INTEGER
) STRICT;

-- Requests that their senders have named: how each was answered, until its time is up.
CREATE TABLE holdfast_request (
    digest      BLOB PRIMARY KEY,
    fingerprint BLOB NOT NULL,
    answers     TEXT NOT NULL,           -- JSON: [[uid, duplicate], …]
    until       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_request_until ON holdfast_request (until);

-- Work on everything that matches a filter. The worker that took one has it until *taken_until*, under an epoch of its own.
CREATE TABLE holdfast_operation (
    number      INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    action      TEXT NOT NULL,
    conditions  TEXT NOT NULL,           -- JSON
    by          TEXT NOT NULL,
    options     TEXT NOT NULL,           -- JSON
    rate        REAL,
    owner       TEXT,
    progress    TEXT NOT NULL,
    matched     INTEGER NOT NULL,
    done        INTEGER NOT NULL,
    refused     INTEGER NOT NULL,
    cursor      TEXT,
    epoch       INTEGER NOT NULL,
    error       TEXT,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    taken_until INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX holdfast_operation_running ON holdfast_operation (updated_at) WHERE progress = 'running';

CREATE TABLE holdfast_webhook (
    number          INTEGER PRIMARY KEY,
    id              TEXT NOT NULL UNIQUE,
    url             TEXT NOT NULL,
    events          TEXT NOT NULL,       -- JSON array
    owner           TEXT,
    secrets         TEXT NOT NULL,       -- JSON array, newest first
    inbound         INTEGER NOT NULL,
    description     TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    failing_since   INTEGER,
    disabled_at     INTEGER,
    disabled_reason TEXT
) STRICT;

-- How far readers of events have come.
CREATE TABLE holdfast_bookmark (
    name  TEXT PRIMARY KEY,
    event INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Lists, newest first: of a key's jobs (who has none pays nothing), and of those that ended badly.
CREATE INDEX holdfast_job_by_key ON holdfast_job (key, id) WHERE key IS NOT NULL;
CREATE INDEX holdfast_job_ended_badly ON holdfast_job (phase, id) WHERE phase >= 4;
