-- Every (lane, prio) of these lanes that has ready jobs: one index step each, however long the lines are. $1 lanes
WITH RECURSIVE t AS (
    SELECT f.lane, f.prio FROM unnest($1::int[]) w(lane) CROSS JOIN LATERAL
           (SELECT x.lane, x.prio FROM holdfast.ready x WHERE x.lane = w.lane ORDER BY x.prio LIMIT 1) f
    UNION ALL
    SELECT n.lane, n.prio FROM t CROSS JOIN LATERAL
           (SELECT x.lane, x.prio FROM holdfast.ready x WHERE x.lane = t.lane AND x.prio > t.prio ORDER BY x.prio LIMIT 1) n
)
SELECT lane, prio FROM t
