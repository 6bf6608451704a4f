-- Every (lane, prio) that has somebody in line: one index step each, however long the lines are.
WITH RECURSIVE t AS (
    (SELECT lane, prio FROM holdfast.ready ORDER BY lane, prio LIMIT 1)
    UNION ALL
    SELECT n.lane, n.prio FROM t CROSS JOIN LATERAL
           (SELECT x.lane, x.prio FROM holdfast.ready x WHERE (x.lane, x.prio) > (t.lane, t.prio) ORDER BY x.lane, x.prio LIMIT 1) n
)
SELECT lane, prio FROM t
