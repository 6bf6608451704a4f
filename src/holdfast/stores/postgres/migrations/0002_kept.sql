-- What attempts leave behind beside their results. Both are written rarely: when something large was made, and when an
-- attempt that had something to say has failed.

-- What was said during an attempt: a JSON array of lines.
CREATE TABLE holdfast.attempt_log (
    job_id uuid NOT NULL,
    epoch  bigint NOT NULL,
    lines  text NOT NULL,
    PRIMARY KEY (job_id, epoch)
);

-- What was put outside, noted before it is written: as long as there is a row, retention has something to delete.
CREATE TABLE holdfast.artifact (
    job_id    uuid NOT NULL,
    epoch     bigint NOT NULL,
    reference text NOT NULL,
    name      text,                     -- null: the result
    bytes     bigint NOT NULL,
    at        timestamptz NOT NULL,
    PRIMARY KEY (job_id, epoch, reference)
);
