-- How many wait and run in each lane that has any, and since when the next one is due. Every count stops at $1.
WITH q AS MATERIALIZED (
    SELECT holdfast.clock() AS at
)
SELECT n.queue, n.task, n.dependency, n.shard, n.fair, w.waiting, a.active,
       (SELECT greatest(q.at - coalesce(h.run_at, g.queued_at, j.created_at), interval '0')
          FROM (SELECT r.id, r.run_at FROM holdfast.ready r WHERE r.lane = n.id ORDER BY r.lane, r.prio, r.ord, r.id LIMIT 1) h
          JOIN holdfast.job j ON j.id = h.id LEFT JOIN holdfast.life g ON g.job_id = h.id) AS oldest
  FROM q, holdfast.lane n
 CROSS JOIN LATERAL (SELECT count(*) AS waiting FROM (SELECT 1 FROM holdfast.ready r WHERE r.lane = n.id LIMIT $1::bigint) x) w
  LEFT JOIN (SELECT lane, count(*) AS active FROM holdfast.lease GROUP BY lane) a ON a.lane = n.id
 WHERE w.waiting > 0 OR a.active > 0
