-- The state of each schedule.
CREATE TABLE holdfast_schedule_tick (
    name   TEXT PRIMARY KEY,
    last   INTEGER,                     -- the newest tick that was handled; the first look at a schedule sets it without a job
    due    INTEGER NOT NULL,
    ticked INTEGER                      -- the newest tick whose job was enqueued
) STRICT, WITHOUT ROWID;
