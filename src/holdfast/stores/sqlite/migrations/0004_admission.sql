-- Lanes know their dependency and shard, and whether their line is ordered fairly by owner. A UNIQUE constraint cannot be
-- changed in place, so the (small) table is made anew; legacy_alter_table keeps the rename from reading the views.
PRAGMA legacy_alter_table = ON;
CREATE TABLE holdfast_lane_wide (
    id         INTEGER PRIMARY KEY,
    queue      TEXT NOT NULL,
    task       TEXT NOT NULL,
    dependency TEXT NOT NULL DEFAULT '',
    shard      TEXT NOT NULL DEFAULT '',
    fair       INTEGER NOT NULL DEFAULT 0,
    UNIQUE (queue, task, dependency, shard, fair)
) STRICT;
INSERT INTO holdfast_lane_wide (id, queue, task) SELECT id, queue, task FROM holdfast_lane;
DROP TABLE holdfast_lane;
ALTER TABLE holdfast_lane_wide RENAME TO holdfast_lane;
PRAGMA legacy_alter_table = OFF;

-- What claims pass by, until somebody resumes it or its time is up (null: never). Few rows, most days none.
CREATE TABLE holdfast_hold (
    kind   TEXT NOT NULL,               -- queue, task, lane, dependency, duty
    name   TEXT NOT NULL,
    cause  TEXT NOT NULL,
    until  INTEGER,
    reason TEXT NOT NULL,
    by     TEXT NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (kind, name, cause)
) STRICT, WITHOUT ROWID;

-- The breaker of a dependency as all workers share it; changed by compare-and-set on its version.
CREATE TABLE holdfast_breaker (
    dependency TEXT NOT NULL,
    shard      TEXT NOT NULL,
    version    INTEGER NOT NULL,
    holding    INTEGER NOT NULL,        -- claims pass its lanes by
    value      TEXT NOT NULL,           -- JSON
    PRIMARY KEY (dependency, shard)
) STRICT, WITHOUT ROWID;

-- What each worker saw of a dependency, as it last told.
CREATE TABLE holdfast_report (
    dependency TEXT NOT NULL,
    shard      TEXT NOT NULL,
    session    INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    version    INTEGER NOT NULL,        -- of the breaker that its vote is about
    vote       INTEGER NOT NULL,
    capacity   INTEGER NOT NULL,        -- how many calls at a time it allows itself
    in_flight  INTEGER NOT NULL,
    latency    REAL,
    calls      INTEGER NOT NULL,
    failures   INTEGER NOT NULL,
    PRIMARY KEY (dependency, shard, session)
) STRICT, WITHOUT ROWID;

-- Jobs that count against a concurrency limit. A job counts while it is processing under this epoch. Nothing has to be
-- freed at a settlement, and nothing leaks in a crash.
CREATE TABLE holdfast_slot (
    scope TEXT NOT NULL,
    job   INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    PRIMARY KEY (scope, job)
) STRICT, WITHOUT ROWID;

-- Rate limits (GCRA): when all that was let through so far would have arrived, had it come evenly.
CREATE TABLE holdfast_meter (
    scope TEXT PRIMARY KEY,
    tat   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Quotas: how much of the latest day or month (of UTC) was used.
CREATE TABLE holdfast_usage (
    scope  TEXT NOT NULL,
    period TEXT NOT NULL,
    begins INTEGER NOT NULL,
    used   INTEGER NOT NULL,
    PRIMARY KEY (scope, period)
) STRICT, WITHOUT ROWID;

-- Fair lines: the latest pass of each owner in a line, and of anybody (owner '').
CREATE TABLE holdfast_flow (
    lane  INTEGER NOT NULL,
    prio  INTEGER NOT NULL,
    owner TEXT NOT NULL,
    last  INTEGER NOT NULL,
    PRIMARY KEY (lane, prio, owner)
) STRICT, WITHOUT ROWID;

CREATE TABLE holdfast_owner_weight (
    owner  TEXT PRIMARY KEY,
    weight REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- Where each schedule stands.
CREATE TABLE holdfast_schedule_tick (
    name TEXT PRIMARY KEY,
    last INTEGER,
    due  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
