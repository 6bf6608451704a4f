-- How often nobody was there for a message: counted apart from its tries, which may park it.
ALTER TABLE holdfast_outbox ADD COLUMN unreached INTEGER NOT NULL DEFAULT 0;
