-- Outbox messages: those that wait, those that are parked, and published ones until retention removes them.

CREATE TABLE holdfast_outbox (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order; no number is used twice
    id           TEXT NOT NULL UNIQUE,
    topic        TEXT NOT NULL,
    key          TEXT,
    body         BLOB NOT NULL,
    headers      TEXT NOT NULL,           -- JSON object
    -- 0 waiting, 1 behind an older message of its key, 2 away until not_before, 3 parked, 4 published
    line         INTEGER NOT NULL DEFAULT 0,
    tries        INTEGER NOT NULL DEFAULT 0,
    error        TEXT,
    created_at   INTEGER NOT NULL,
    since        INTEGER NOT NULL,        -- when it began to wait: created or replayed
    not_before   INTEGER,                 -- taken by a relay, or put off, until then
    settled_at   INTEGER,                 -- parked or published
    epoch        INTEGER NOT NULL DEFAULT 0,  -- of the relay that took it last
    failed_epoch INTEGER NOT NULL DEFAULT 0,  -- of its last failed try: a repeated report under this epoch is not counted again
    unreached    INTEGER NOT NULL DEFAULT 0,  -- tries that did not reach the target; counted apart from tries, which may park it
    CHECK ((line = 2) = (not_before IS NOT NULL)),
    CHECK ((line >= 3) = (settled_at IS NOT NULL))
) STRICT;
CREATE INDEX holdfast_outbox_line ON holdfast_outbox (topic, line, number);
CREATE INDEX holdfast_outbox_away ON holdfast_outbox (topic, not_before) WHERE line = 2;
-- The messages of one key that may hold up others, and those that are held up.
CREATE INDEX holdfast_outbox_in_hand ON holdfast_outbox (topic, key, number) WHERE line = 2 AND key IS NOT NULL;
CREATE INDEX holdfast_outbox_behind ON holdfast_outbox (topic, key, number) WHERE line = 1 AND key IS NOT NULL;
CREATE INDEX holdfast_outbox_parked ON holdfast_outbox (topic, key, number) WHERE line = 3 AND key IS NOT NULL;
CREATE INDEX holdfast_outbox_key ON holdfast_outbox (key, number) WHERE key IS NOT NULL;
CREATE INDEX holdfast_outbox_published ON holdfast_outbox (settled_at) WHERE line = 4;
