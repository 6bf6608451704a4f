-- How many jobs wait and run in each lane that has any, and since when the next one is due. Every count stops at $1. Lanes without jobs
-- are never visited: the scan steps from one lane to the next by the index.
WITH RECURSIVE waits AS (
    (SELECT x.lane FROM holdfast.ready x ORDER BY x.lane LIMIT 1)
    UNION ALL
    SELECT m.lane FROM waits w CROSS JOIN LATERAL
           (SELECT x.lane FROM holdfast.ready x WHERE x.lane > w.lane ORDER BY x.lane LIMIT 1) m
), runs AS MATERIALIZED (
    SELECT lane, count(*) AS active FROM holdfast.lease GROUP BY lane
), q AS MATERIALIZED (
    SELECT holdfast.clock() AS at
)
SELECT n.queue, n.task, n.dependency, n.shard, n.fair, w.waiting, r.active,
       (SELECT greatest(q.at - coalesce(h.run_at, g.queued_at, j.created_at), interval '0')
          FROM (SELECT r.id, r.run_at FROM holdfast.ready r WHERE r.lane = n.id ORDER BY r.lane, r.prio, r.ord, r.id LIMIT 1) h
          JOIN holdfast.job j ON j.id = h.id LEFT JOIN holdfast.life g ON g.job_id = h.id) AS oldest
  FROM q, (SELECT lane FROM waits UNION SELECT lane FROM runs) x
 CROSS JOIN LATERAL (SELECT * FROM holdfast.lane l WHERE l.id = x.lane OFFSET 0) n
 CROSS JOIN LATERAL (SELECT count(*) AS waiting FROM (SELECT 1 FROM holdfast.ready r WHERE r.lane = n.id LIMIT $1::bigint) y) w
  LEFT JOIN runs r ON r.lane = n.id
