-- Return the lines that new jobs entered, from the events that record this. The jobs of one event share a line, unless its first and
-- last differ. One row has only the number of the last event. $1 the last event that was read, $2 limit
WITH x AS MATERIALIZED (
    SELECT seq, kind, CASE kind WHEN 1 THEN job_ids END AS job_ids FROM holdfast.event WHERE seq > (SELECT $1::bigint) ORDER BY seq LIMIT (SELECT $2::int)
), e AS MATERIALIZED (
    SELECT seq, job_ids FROM x WHERE kind = 1
), ends AS MATERIALIZED (
    SELECT e.seq, e.job_ids, a.lane, a.prio, a.owner, (a.lane, a.prio) IS DISTINCT FROM (z.lane, z.prio) AS mixed
      FROM e
     CROSS JOIN LATERAL (SELECT lane, prio, owner FROM holdfast.job WHERE id = e.job_ids[1] OFFSET 0) a
     CROSS JOIN LATERAL (SELECT lane, prio FROM holdfast.job WHERE id = e.job_ids[cardinality(e.job_ids)] OFFSET 0) z
)
SELECT max(seq) AS seq, NULL AS lane, NULL AS prio, NULL AS owner FROM x HAVING count(*) > 0
UNION ALL
SELECT max(n.seq), n.lane, n.prio, n.owner
  FROM (SELECT seq, lane, prio, owner FROM ends WHERE NOT mixed
        UNION ALL
        SELECT ends.seq, j.lane, j.prio, j.owner FROM ends CROSS JOIN unnest(ends.job_ids) AS u(id)
         CROSS JOIN LATERAL (SELECT lane, prio, owner FROM holdfast.job WHERE id = u.id OFFSET 0) j
         WHERE ends.mixed) n
 GROUP BY n.lane, n.prio, n.owner
