-- How many wait and run in each lane that has any, and since when the next one is due. Every count stops at :most.
SELECT * FROM (
    SELECT n.queue, n.task, n.dependency, n.shard, n.fair,
           (SELECT count(*) FROM (SELECT 1 FROM holdfast_job WHERE phase = 0 AND lane = n.id LIMIT :most)) AS waiting,
           coalesce(a.active, 0) AS active,
           (SELECT max(:now - run_at, 0) FROM holdfast_job WHERE phase = 0 AND lane = n.id ORDER BY prio, ord, id LIMIT 1) AS oldest
      FROM holdfast_lane n
      LEFT JOIN (SELECT lane, count(*) AS active FROM holdfast_job WHERE phase = 2 GROUP BY lane) a ON a.lane = n.id)
 WHERE waiting > 0 OR active > 0
