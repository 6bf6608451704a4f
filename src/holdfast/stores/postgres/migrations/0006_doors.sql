-- What the front doors keep.

-- Keys: the secret itself is nowhere, only its SHA-256.
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

-- Requests that their senders have named: how each was answered, until its time is up.
CREATE TABLE holdfast.request (
    digest      bytea PRIMARY KEY,
    fingerprint bytea NOT NULL,
    answers     text NOT NULL,           -- JSON: [[id, duplicate], …]
    until       timestamptz NOT NULL
);
CREATE INDEX request_until ON holdfast.request (until);

-- Work on everything that matches a filter. The worker that took one has it until *taken_until*, under an epoch of its own.
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

-- How far readers of events have come.
CREATE TABLE holdfast.bookmark (
    name  text PRIMARY KEY,
    event text NOT NULL  -- a number: of an old cluster's transactions it is larger than a bigint
) WITH (fillfactor = 50);

-- Lists, newest first: of a key's jobs (who has none pays nothing), and of those that ended badly.
CREATE INDEX job_key ON holdfast.job (key, id) WHERE key IS NOT NULL;
CREATE INDEX done_badly ON holdfast.done (state, job_id) INCLUDE (error_code) WHERE state <> 3;
