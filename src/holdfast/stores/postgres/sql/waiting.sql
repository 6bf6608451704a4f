-- The next lines after ($1, $2) that have ready jobs, and the owner of the next job in each: one index step for each line.
-- $1 lane, $2 prio, $3 limit
WITH RECURSIVE t AS (
    (SELECT x.lane, x.prio, x.id FROM holdfast.ready x WHERE (x.lane, x.prio) > ($1::int, $2::smallint)
      ORDER BY x.lane, x.prio, x.ord, x.id LIMIT 1)
    UNION ALL
    SELECT n.lane, n.prio, n.id FROM t CROSS JOIN LATERAL
           (SELECT x.lane, x.prio, x.id FROM holdfast.ready x WHERE (x.lane, x.prio) > (t.lane, t.prio)
             ORDER BY x.lane, x.prio, x.ord, x.id LIMIT 1) n
)
SELECT t.lane, t.prio, j.owner
  FROM (SELECT * FROM t LIMIT $3::int) t CROSS JOIN LATERAL (SELECT owner FROM holdfast.job WHERE id = t.id OFFSET 0) j
