-- Statistics: figures of minutes, hours and days, folded from the event log (ADR 35).

-- What a figure is about. A queue, a task, a dependency or a code is '' where the figure has none.
CREATE TABLE holdfast.statistic_series (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue      text NOT NULL,
    task       text NOT NULL,
    dependency text NOT NULL,
    code       text NOT NULL,
    UNIQUE (queue, task, dependency, code)
);

-- One figure of one series in one minute, hour or day. *bucket* is that of a histogram, or the number of an attempt, else 0.
CREATE TABLE holdfast.statistic (
    step    smallint NOT NULL,          -- minutes: 1, 60 or 1440
    at      timestamptz NOT NULL,       -- when the minute, hour or day began
    series  bigint NOT NULL,
    metric  smallint NOT NULL,          -- the numbers of holdfast.statistics.metrics.Metric
    bucket  smallint NOT NULL,
    value   float8 NOT NULL,
    PRIMARY KEY (step, at, series, metric, bucket)
) WITH (fillfactor = 70);
