-- Every lane that has ready jobs: the scan steps from one lane to the next by the index.
WITH RECURSIVE waits AS (
    (SELECT x.lane FROM holdfast.ready x ORDER BY x.lane LIMIT 1)
    UNION ALL
    SELECT m.lane FROM waits w CROSS JOIN LATERAL
           (SELECT x.lane FROM holdfast.ready x WHERE x.lane > w.lane ORDER BY x.lane LIMIT 1) m
)
SELECT n.queue, n.task, n.dependency, n.shard, n.fair
  FROM waits w CROSS JOIN LATERAL (SELECT * FROM holdfast.lane l WHERE l.id = w.lane OFFSET 0) n
