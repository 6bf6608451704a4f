-- Every dependency that has a breaker or a live report, as all workers together see it. $1 how long a report counts
WITH q AS MATERIALIZED (
    SELECT holdfast.clock() AS at
), r AS MATERIALIZED (
    SELECT x.* FROM q, holdfast.report x WHERE x.at BETWEEN q.at - $1::interval AND q.at + $1::interval
)
SELECT d.dependency, d.shard, b.value, count(*) FILTER (WHERE r.vote AND r.version = coalesce(b.version, 0)) AS votes,
       count(r.session_id) AS callers, coalesce(sum(r.capacity), 0)::bigint AS capacity, coalesce(sum(r.in_flight), 0)::bigint AS in_flight,
       avg(r.latency) AS latency, coalesce(sum(r.calls), 0)::bigint AS calls, coalesce(sum(r.failures), 0)::bigint AS failures, q.at
  FROM q, (SELECT dependency, shard FROM holdfast.breaker UNION SELECT dependency, shard FROM r) d
  LEFT JOIN holdfast.breaker b ON b.dependency = d.dependency AND b.shard = d.shard
  LEFT JOIN r ON r.dependency = d.dependency AND r.shard = d.shard
 GROUP BY d.dependency, d.shard, b.value, b.version, q.at
 ORDER BY d.dependency, d.shard
