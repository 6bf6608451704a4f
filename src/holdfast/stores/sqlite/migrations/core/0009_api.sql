-- What the HTTP API stores.

-- Access keys. The secret is not stored, only its SHA-256.
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

-- The answers to requests that had an idempotency key, kept until the given time.
CREATE TABLE holdfast_request (
    digest      BLOB PRIMARY KEY,
    fingerprint BLOB NOT NULL,
    answers     TEXT NOT NULL,           -- JSON: [[uid, duplicate], …]
    until       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_request_until ON holdfast_request (until);

-- Operations on all jobs that match a filter. A worker holds one until *taken_until*, under an epoch of the operation.
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
