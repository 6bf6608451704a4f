-- The owner whose job is next in each of these lines, without lines that have no jobs. It is behind SELECT, so that it is planned once.
-- $1 lanes, $2 prios
SELECT p.lane, p.prio, j.owner
  FROM unnest((SELECT $1::int[]), (SELECT $2::smallint[])) AS p(lane, prio)
 CROSS JOIN LATERAL (SELECT x.id FROM holdfast.ready x WHERE x.lane = p.lane AND x.prio = p.prio ORDER BY x.ord, x.id LIMIT 1) h
 CROSS JOIN LATERAL (SELECT owner FROM holdfast.job WHERE id = h.id OFFSET 0) j
