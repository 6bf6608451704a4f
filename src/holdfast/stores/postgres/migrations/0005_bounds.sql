-- Whether a hold in force stops this duty. Most days there is none: a look at an index of nothing.
CREATE FUNCTION holdfast.paused(duty text) RETURNS boolean LANGUAGE sql VOLATILE AS
$$ SELECT EXISTS (SELECT FROM holdfast.hold h WHERE h.kind = 'maintenance' AND h.name = duty AND h.until > holdfast.clock()) $$;

-- Due at once when it came here, so it waits for its key only: pauses of what is due later do not concern it.
ALTER TABLE holdfast.deferred ADD at_once boolean NOT NULL DEFAULT false;

-- The order in which the jobs of a key take their turns.
CREATE INDEX deferred_turn ON holdfast.deferred (key, prio, id) WHERE key IS NOT NULL;
DROP INDEX holdfast.deferred_key;

-- How many jobs of its key may be in line or processing at a time; null: one.
ALTER TABLE holdfast.job ADD key_slots smallint;
ALTER TABLE holdfast.key_slot ADD n smallint NOT NULL DEFAULT 1, DROP CONSTRAINT key_slot_pkey, ADD PRIMARY KEY (key, n);
