-- fold: count the events from number $1 on, at most $2 rows of them, for statistics. The reader stops where `feed` stops: $3 the
-- event_offset, read by an earlier statement. $4 the bounds of the buckets of histograms.
-- Returns one row for each figure: metric (the kind of the moves; 101 how long jobs were due, 102 how long attempts took, 103 how long it
-- took from the enqueue to the completion), minute, queue, task, dependency, attempt, code, bucket, count, cost; and first a row with
-- metric 0: how many rows were read, and in *minute* the number of the last one. An enqueue into one lane is counted without a look at its jobs.
WITH b AS MATERIALIZED (
    SELECT seq, floor(date_part('epoch', at) / 60)::bigint AS minute, kind, job_ids, attempts, durations, metas, lane, lanes, waits
      FROM holdfast.event
     WHERE seq >= $1::bigint AND seq < ((pg_snapshot_xmin(pg_current_snapshot())::text::bigint + $3::bigint) << 20)
     ORDER BY seq LIMIT $2::int
), u AS MATERIALIZED (
    SELECT b.minute, b.kind, coalesce(b.lane, m.lane) AS lane, m.attempt, m.meta ->> 'error_code' AS code,
           coalesce((m.meta ->> 'cost')::float8, 1) AS cost, coalesce(m.duration, (m.meta ->> 'duration_ms')::bigint) AS duration, m.wait
      FROM b CROSS JOIN LATERAL unnest(b.lanes, b.attempts, b.durations::bigint[], b.metas, b.waits::bigint[])
                                       AS m(lane, attempt, duration, meta, wait)
     WHERE (b.kind > 1 OR b.lane IS NULL) AND (b.lane IS NOT NULL OR b.lanes IS NOT NULL)
), x AS (
    SELECT 1 AS metric, minute, lane, 0 AS attempt, '' AS code, 0 AS bucket, sum(cardinality(job_ids))::float8 AS count, 0::float8 AS cost
      FROM b WHERE kind = 1 AND lane IS NOT NULL GROUP BY minute, lane
    UNION ALL
    SELECT kind, minute, lane, coalesce(attempt, 0), coalesce(code, ''), 0, count(*), sum(cost) FROM u GROUP BY 1, 2, 3, 4, 5
    UNION ALL
    SELECT 101, minute, lane, 0, '', width_bucket(wait, $4::bigint[]), count(*), 0 FROM u WHERE kind = 2 AND wait IS NOT NULL GROUP BY 2, 3, 6
    UNION ALL
    SELECT 102, minute, lane, 0, '', width_bucket(duration, $4::bigint[]), count(*), 0 FROM u WHERE duration IS NOT NULL GROUP BY 2, 3, 6
    UNION ALL
    SELECT 103, minute, lane, 0, '', width_bucket(wait + duration, $4::bigint[]), count(*), 0
      FROM u WHERE kind = 3 AND wait IS NOT NULL AND duration IS NOT NULL GROUP BY 2, 3, 6
)
SELECT 0 AS metric, coalesce(max(seq), 0) AS minute, '' AS queue, '' AS task, '' AS dependency, 0 AS attempt, '' AS code, 0 AS bucket,
       count(*)::float8 AS count, 0::float8 AS cost
  FROM b
UNION ALL
SELECT x.metric, x.minute, n.queue, n.task, n.dependency, x.attempt, x.code, x.bucket, x.count, x.cost
  FROM x JOIN holdfast.lane n ON n.id = x.lane
