-- Where failures were raised. Jobs that fail in the same way share one text, known by a hash of it.
CREATE TABLE holdfast.traceback (
    key  text PRIMARY KEY,
    text text NOT NULL,
    at   timestamptz NOT NULL           -- when a worker last said that it uses it; it says so again every hour
);

ALTER TABLE holdfast.attempt ADD COLUMN traceback text;

-- Retention asks which ones are still referred to.
CREATE INDEX attempt_traceback ON holdfast.attempt (traceback) WHERE traceback IS NOT NULL;
