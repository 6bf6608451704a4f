-- Positions that processes share, each moved by compare-and-set.

-- The state of each schedule.
CREATE TABLE holdfast.schedule_tick (
    name   text PRIMARY KEY,
    last   timestamptz,                 -- the newest tick that was handled; the first look at a schedule sets it without a job
    due    timestamptz NOT NULL,
    ticked timestamptz                  -- the newest tick whose job was enqueued
);

-- How far readers of events have come.
CREATE TABLE holdfast.bookmark (
    name  text PRIMARY KEY,
    event text NOT NULL  -- a number; in an old cluster of PostgreSQL it may exceed a bigint
) WITH (fillfactor = 50);
