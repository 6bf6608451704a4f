-- Every (lane, prio) of fair lanes that has somebody, and whether some of them are not placed yet: two index steps for each line.
-- $1 where moments begin
WITH RECURSIVE t AS (
    (SELECT x.lane, x.prio FROM holdfast.ready x ORDER BY x.lane, x.prio LIMIT 1)
    UNION ALL
    SELECT n.lane, n.prio FROM t CROSS JOIN LATERAL
           (SELECT x.lane, x.prio FROM holdfast.ready x WHERE (x.lane, x.prio) > (t.lane, t.prio) ORDER BY x.lane, x.prio LIMIT 1) n
)
SELECT t.lane, t.prio,
       (SELECT r.ord FROM holdfast.ready r WHERE r.lane = t.lane AND r.prio = t.prio ORDER BY r.ord DESC LIMIT 1) >= $1::bigint AS newcomers
  FROM t
 WHERE (SELECT l.fair FROM holdfast.lane l WHERE l.id = t.lane)
