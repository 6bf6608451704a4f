-- How many jobs wait and run in each lane that has any, and since when the next one is due. Every count stops at :most. Lanes without jobs
-- are never visited: the scan steps from one lane to the next by the index.
WITH RECURSIVE waits (lane) AS (
    SELECT (SELECT lane FROM holdfast_job WHERE phase = 0 ORDER BY lane LIMIT 1)
    UNION ALL
    SELECT (SELECT j.lane FROM holdfast_job j WHERE j.phase = 0 AND j.lane > w.lane ORDER BY j.lane LIMIT 1) FROM waits w
     WHERE w.lane IS NOT NULL
), runs AS MATERIALIZED (
    SELECT lane, count(*) AS active FROM holdfast_job WHERE phase = 2 GROUP BY lane
)
SELECT n.queue, n.task, n.dependency, n.shard, n.fair,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast_job WHERE phase = 0 AND lane = n.id LIMIT :most)) AS waiting,
       coalesce(r.active, 0) AS active,
       (SELECT max(:now - run_at, 0) FROM holdfast_job WHERE phase = 0 AND lane = n.id ORDER BY prio, ord, id LIMIT 1) AS oldest
  FROM (SELECT lane FROM waits WHERE lane IS NOT NULL UNION SELECT lane FROM runs) x
  JOIN holdfast_lane n ON n.id = x.lane LEFT JOIN runs r ON r.lane = n.id
