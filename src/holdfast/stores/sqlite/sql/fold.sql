-- fold: count the events from number ?1 on, at most ?2 rows of them, for statistics. Their facts are counted already (facts.py).
-- Returns one row for each figure: metric (the kind of the moves; 101 how long jobs were due, 102 how long attempts took, 103 how long it
-- took from the enqueue to the completion), minute, queue, task, dependency, attempt, code, bucket, count, cost; and first a row with
-- metric 0: how many rows were read, and in *minute* the number of the last one.
WITH b AS MATERIALIZED (
    SELECT seq, at / 60000000 AS minute, kind, facts FROM holdfast_event WHERE seq >= ?1 ORDER BY seq LIMIT ?2
), f AS MATERIALIZED (
    SELECT minute, kind, value ->> 0 AS lane, value ->> 1 AS moves, coalesce(value ->> 2, 0) AS attempt, coalesce(value ->> 3, '') AS code,
           coalesce(value ->> 4, value ->> 1) AS cost, value -> 5 AS waits, value -> 6 AS durations, value -> 7 AS totals
      FROM b, json_each(b.facts)
), x AS (
    SELECT kind AS metric, minute, lane, attempt, code, 0 AS bucket, sum(moves) AS count, sum(cost) AS cost FROM f GROUP BY 1, 2, 3, 4, 5
    UNION ALL
    SELECT 101, minute, lane, 0, '', key, sum(value), 0 FROM f, json_each(f.waits) WHERE waits <> 'null' GROUP BY 2, 3, 6
    UNION ALL
    SELECT 102, minute, lane, 0, '', key, sum(value), 0 FROM f, json_each(f.durations) WHERE durations <> 'null' GROUP BY 2, 3, 6
    UNION ALL
    SELECT 103, minute, lane, 0, '', key, sum(value), 0 FROM f, json_each(f.totals) WHERE totals <> 'null' GROUP BY 2, 3, 6
)
SELECT 0 AS metric, coalesce(max(seq), 0) AS minute, '' AS queue, '' AS task, '' AS dependency, 0 AS attempt, '' AS code, 0 AS bucket,
       count(*) AS count, 0 AS cost
  FROM b
UNION ALL
SELECT x.metric, x.minute, n.queue, n.task, n.dependency, x.attempt, x.code, x.bucket, x.count, x.cost
  FROM x JOIN holdfast_lane n ON n.id = x.lane
