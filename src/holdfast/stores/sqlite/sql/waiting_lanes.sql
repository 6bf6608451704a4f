-- Every lane that has ready jobs: the scan steps from one lane to the next by the index.
WITH RECURSIVE waits (lane) AS (
    SELECT (SELECT lane FROM holdfast_job WHERE phase = 0 ORDER BY lane LIMIT 1)
    UNION ALL
    SELECT (SELECT j.lane FROM holdfast_job j WHERE j.phase = 0 AND j.lane > w.lane ORDER BY j.lane LIMIT 1) FROM waits w
     WHERE w.lane IS NOT NULL
)
SELECT n.queue, n.task, n.dependency, n.shard, n.fair FROM waits w JOIN holdfast_lane n ON n.id = w.lane
