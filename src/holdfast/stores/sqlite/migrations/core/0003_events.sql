-- The event log.

-- One row records the same move of many jobs: [[uid, epoch, attempt, meta], …]. Jobs and attempts point to their event rows
-- (queued_event, epoch, settle_event), so the history of one job needs no index here. A rare move of a single job has its
-- uid in *job* and is found by the index (ADR 0003).
CREATE TABLE holdfast_event (
    seq   INTEGER PRIMARY KEY,                                    -- no number is used twice, because the newest row is never purged
    at    INTEGER NOT NULL,
    kind  INTEGER NOT NULL,
    job   TEXT,
    moves TEXT NOT NULL,
    facts TEXT                                                    -- what statistics need: see stores/sqlite/facts.py
) STRICT;
CREATE INDEX holdfast_event_job ON holdfast_event (job) WHERE job IS NOT NULL;
