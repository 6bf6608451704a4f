-- Every (lane, prio) of fair lanes that has jobs which are not placed yet: two index steps for each line that has jobs.
-- $1 the smallest `ord` of a job without a place
WITH RECURSIVE t AS (
    (SELECT x.lane, x.prio FROM holdfast.ready x ORDER BY x.lane, x.prio LIMIT 1)
    UNION ALL
    SELECT n.lane, n.prio FROM t CROSS JOIN LATERAL
           (SELECT x.lane, x.prio FROM holdfast.ready x WHERE (x.lane, x.prio) > (t.lane, t.prio) ORDER BY x.lane, x.prio LIMIT 1) n
)
SELECT t.lane, t.prio FROM t
 WHERE (SELECT r.ord FROM holdfast.ready r WHERE r.lane = t.lane AND r.prio = t.prio ORDER BY r.ord DESC LIMIT 1) >= $1::bigint
   AND (SELECT l.fair FROM holdfast.lane l WHERE l.id = t.lane)
