-- What keeps claims away from lanes: pauses and circuit breakers.

-- Pauses. Claims skip a lane that a row covers, until the given time (null: until a person resumes it). The table is almost
-- always empty.
CREATE TABLE holdfast_hold (
    kind   TEXT NOT NULL,               -- queue, task, lane, dependency, schedule, maintenance
    name   TEXT NOT NULL,
    cause  TEXT NOT NULL,
    until  INTEGER,
    reason TEXT NOT NULL,
    by     TEXT NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (kind, name, cause)
) STRICT, WITHOUT ROWID;

-- The circuit breaker of a dependency, shared by all workers. It is changed by compare-and-set on its version.
CREATE TABLE holdfast_breaker (
    dependency TEXT NOT NULL,
    shard      TEXT NOT NULL,
    version    INTEGER NOT NULL,
    holding    INTEGER NOT NULL,        -- claims skip its lanes
    value      TEXT NOT NULL,           -- JSON
    PRIMARY KEY (dependency, shard)
) STRICT, WITHOUT ROWID;
-- Whether any breaker holds its lanes: every claim asks this first.
CREATE INDEX holdfast_breaker_holding ON holdfast_breaker (holding) WHERE holding;

-- The last report of each worker about a dependency.
CREATE TABLE holdfast_report (
    dependency TEXT NOT NULL,
    shard      TEXT NOT NULL,
    session_id INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    version    INTEGER NOT NULL,        -- of the breaker that the vote is about
    vote       INTEGER NOT NULL,
    capacity   INTEGER NOT NULL,        -- how many calls the worker allows itself at a time
    in_flight  INTEGER NOT NULL,
    latency    REAL,
    calls      INTEGER NOT NULL,
    failures   INTEGER NOT NULL,
    PRIMARY KEY (dependency, shard, session_id)
) STRICT, WITHOUT ROWID;
