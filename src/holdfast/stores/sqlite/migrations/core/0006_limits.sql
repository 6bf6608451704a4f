-- Limits: concurrency, rates and quotas.

-- The jobs that count against a concurrency limit. A row counts while its job is processing under this epoch. So nothing has
-- to be freed when a job ends, and a crash leaks nothing.
CREATE TABLE holdfast_slot (
    scope TEXT NOT NULL,
    job   INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    PRIMARY KEY (scope, job)
) STRICT, WITHOUT ROWID;

-- Rate limits by GCRA. tat is the theoretical arrival time: when everything that was admitted so far would have arrived at
-- an even rate.
CREATE TABLE holdfast_meter (
    scope TEXT PRIMARY KEY,
    tat   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Quotas: how much of the latest UTC day or month is used.
CREATE TABLE holdfast_usage (
    scope  TEXT NOT NULL,
    period TEXT NOT NULL,               -- day, month
    begins INTEGER NOT NULL,
    used   INTEGER NOT NULL,
    PRIMARY KEY (scope, period)
) STRICT, WITHOUT ROWID;
