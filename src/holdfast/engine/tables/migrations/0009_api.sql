-- What the HTTP API stores.

-- Access keys. The secret is not stored, only its SHA-256.
CREATE TABLE holdfast.access_key (
    id           text PRIMARY KEY,
    name         text NOT NULL,
    role         text NOT NULL,
    owner        text,
    digest       bytea NOT NULL UNIQUE,
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz
) WITH (fillfactor = 50);

-- The answers to requests that had an idempotency key, kept until the given time.
CREATE TABLE holdfast.request (
    digest      bytea PRIMARY KEY,
    fingerprint bytea NOT NULL,
    answers     text NOT NULL,           -- JSON: [[id, duplicate], …]
    until       timestamptz NOT NULL
);
CREATE INDEX request_until ON holdfast.request (until);

-- Operations on all jobs that match a filter. A worker holds one until *taken_until*, under an epoch of the operation.
CREATE TABLE holdfast.operation (
    number      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id          text NOT NULL UNIQUE,
    action      text NOT NULL,
    conditions  text NOT NULL,           -- JSON
    by          text NOT NULL,
    options     text NOT NULL,           -- JSON
    rate        float8,
    owner       text,
    progress    text NOT NULL,
    matched     bigint NOT NULL,
    done        bigint NOT NULL,
    refused     bigint NOT NULL,
    cursor      text,
    state       text NOT NULL DEFAULT '{}',  -- JSON: what it remembers from one batch to the next
    epoch       bigint NOT NULL,
    error       text,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    taken_until timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);
CREATE INDEX operation_running ON holdfast.operation (number) WHERE progress = 'running';

CREATE TABLE holdfast.webhook (
    number          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id              text NOT NULL UNIQUE,
    url             text NOT NULL,
    events          text NOT NULL,       -- JSON array
    owner           text,
    secrets         text NOT NULL,       -- JSON array, newest first
    inbound         boolean NOT NULL,
    description     text NOT NULL,
    created_at      timestamptz NOT NULL,
    failing_since   timestamptz,
    disabled_at     timestamptz,
    disabled_reason text
) WITH (fillfactor = 50);
