-- How many tries did not reach the target of a message: counted apart from `tries`, which may park it.
ALTER TABLE holdfast_outbox ADD COLUMN unreached INTEGER NOT NULL DEFAULT 0;
