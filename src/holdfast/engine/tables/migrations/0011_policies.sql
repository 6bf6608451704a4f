-- Values that are laid over the policy file of every process.

-- One row: the version of the newest change. Every change moves it, so changes happen one after the other.
CREATE TABLE holdfast.policy_version (
    id      int PRIMARY KEY,
    version bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE holdfast.policy_override (
    version      bigint PRIMARY KEY,
    key          text NOT NULL,         -- as in a policy file: tasks.convert.max_attempts
    value        text NOT NULL,         -- JSON
    by           text NOT NULL,
    reason       text NOT NULL,
    token        text NOT NULL,         -- names the call that set it, which may be repeated
    set_at       timestamptz NOT NULL,
    expires_at   timestamptz,
    ended_at     timestamptz,           -- when it was replaced or unset, or when its end was recorded after it had expired
    ended_by     text,
    ended_reason text
) WITH (fillfactor = 90);
CREATE UNIQUE INDEX policy_override_in_force ON holdfast.policy_override (key) WHERE ended_at IS NULL;
CREATE INDEX policy_override_key ON holdfast.policy_override (key, version);
