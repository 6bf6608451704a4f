-- Where failures were raised. Jobs that fail in the same way share one text, known by a hash of it.
CREATE TABLE holdfast_traceback (
    key  TEXT PRIMARY KEY,
    text TEXT NOT NULL,
    at   INTEGER NOT NULL               -- when a worker last said that it uses it; it says so again every hour
) STRICT, WITHOUT ROWID;

ALTER TABLE holdfast_attempt ADD COLUMN traceback TEXT;

-- Retention asks which ones are still referred to.
CREATE INDEX holdfast_attempt_traceback ON holdfast_attempt (traceback) WHERE traceback IS NOT NULL;
