-- What attempts leave behind beside their results. Both are written rarely: when something large was made, and when an
-- attempt that had something to say has failed.

-- What was said during an attempt: a JSON array of lines.
CREATE TABLE holdfast_attempt_log (
    job   INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    lines TEXT NOT NULL,
    PRIMARY KEY (job, epoch)
) STRICT, WITHOUT ROWID;

-- What was put outside, noted before it is written: as long as there is a row, retention has something to delete.
CREATE TABLE holdfast_artifact (
    job       INTEGER NOT NULL,
    epoch     INTEGER NOT NULL,
    reference TEXT NOT NULL,
    name      TEXT,                     -- null: the result
    bytes     INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (job, epoch, reference)
) STRICT, WITHOUT ROWID;
