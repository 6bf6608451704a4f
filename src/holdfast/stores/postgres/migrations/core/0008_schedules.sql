-- The state of each schedule.
CREATE TABLE holdfast.schedule_tick (
    name   text PRIMARY KEY,
    last   timestamptz,                 -- the newest tick that was handled; the first look at a schedule sets it without a job
    due    timestamptz NOT NULL,
    ticked timestamptz                  -- the newest tick whose job was enqueued
);
