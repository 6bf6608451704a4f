-- Messages for others: those that wait, those that are parked, and for a while those that were published.

CREATE TABLE holdfast_outbox (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,  -- no number is ever used twice: they are the order
    id           TEXT NOT NULL UNIQUE,
    topic        TEXT NOT NULL,
    key          TEXT,
    body         BLOB NOT NULL,
    headers      TEXT NOT NULL,           -- JSON object
    line         INTEGER NOT NULL DEFAULT 0,  -- 0 in line, 1 behind an older one of its key, 2 away until not_before, 3 parked, 4 published
    tries        INTEGER NOT NULL DEFAULT 0,
    error        TEXT,
    created_at   INTEGER NOT NULL,
    since        INTEGER NOT NULL,        -- when it began to wait: created or replayed
    not_before   INTEGER,                 -- taken or put off until then
    settled_at   INTEGER,                 -- parked or published
    epoch        INTEGER NOT NULL DEFAULT 0,  -- of who took it last
    failed_epoch INTEGER NOT NULL DEFAULT 0,  -- under which its last failed try was told: told again, it is not counted again
    CHECK ((line = 2) = (not_before IS NOT NULL)),
    CHECK ((line >= 3) = (settled_at IS NOT NULL))
) STRICT;
CREATE INDEX holdfast_outbox_line ON holdfast_outbox (topic, line, number);
CREATE INDEX holdfast_outbox_away ON holdfast_outbox (topic, not_before) WHERE line = 2;
-- Of one key: what keeps others behind it, and who is there.
CREATE INDEX holdfast_outbox_in_hand ON holdfast_outbox (topic, key, number) WHERE line = 2 AND key IS NOT NULL;
CREATE INDEX holdfast_outbox_behind ON holdfast_outbox (topic, key, number) WHERE line = 1 AND key IS NOT NULL;
CREATE INDEX holdfast_outbox_parked ON holdfast_outbox (topic, key, number) WHERE line = 3 AND key IS NOT NULL;
CREATE INDEX holdfast_outbox_key ON holdfast_outbox (key, number) WHERE key IS NOT NULL;
CREATE INDEX holdfast_outbox_published ON holdfast_outbox (settled_at) WHERE line = 4;
