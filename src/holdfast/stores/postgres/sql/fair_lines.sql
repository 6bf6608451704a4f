-- `lines` of all fair lanes
WITH RECURSIVE t AS (
    SELECT f.lane, f.prio FROM holdfast.lane w CROSS JOIN LATERAL
           (SELECT x.lane, x.prio FROM holdfast.ready x WHERE x.lane = w.id ORDER BY x.prio LIMIT 1) f WHERE w.fair
    UNION ALL
    SELECT n.lane, n.prio FROM t CROSS JOIN LATERAL
           (SELECT x.lane, x.prio FROM holdfast.ready x WHERE x.lane = t.lane AND x.prio > t.prio ORDER BY x.prio LIMIT 1) n
)
SELECT lane, prio FROM t
