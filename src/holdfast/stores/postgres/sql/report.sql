-- report: replaces the reports of a worker, and returns the states of their dependencies. One statement, because every worker
-- sends it once a second. Its snapshot is older than what it writes, so the new reports are counted from the parameters.
-- $1 session, $2 how long a report counts; by place: $3 dependencies, $4 shards, $5 versions, $6 votes, $7 capacities,
-- $8 in flight, $9 latencies, $10 calls, $11 failures
WITH q AS MATERIALIZED (
    SELECT holdfast.clock() AS at
), m AS MATERIALIZED (
    SELECT * FROM unnest($3::text[], $4::text[], $5::bigint[], $6::boolean[], $7::int[], $8::int[], $9::float8[], $10::bigint[], $11::bigint[])
                  AS m(dependency, shard, version, vote, capacity, in_flight, latency, calls, failures)
), w AS (
    INSERT INTO holdfast.report (dependency, shard, session_id, at, version, vote, capacity, in_flight, latency, calls, failures)
    SELECT m.dependency, m.shard, $1::bigint, q.at, m.version, m.vote, m.capacity, m.in_flight, m.latency, m.calls, m.failures FROM m, q
        ON CONFLICT (dependency, shard, session_id) DO UPDATE
       SET at = excluded.at, version = excluded.version, vote = excluded.vote, capacity = excluded.capacity, in_flight = excluded.in_flight,
           latency = excluded.latency, calls = excluded.calls, failures = excluded.failures
), r AS (
    SELECT * FROM m
    UNION ALL
    SELECT x.dependency, x.shard, x.version, x.vote, x.capacity, x.in_flight, x.latency, x.calls, x.failures
      FROM q, m JOIN holdfast.report x ON x.dependency = m.dependency AND x.shard = m.shard
     WHERE x.session_id <> $1::bigint AND x.at BETWEEN q.at - $2::interval AND q.at + $2::interval
)
SELECT r.dependency, r.shard, b.value, count(*) FILTER (WHERE r.vote AND r.version = coalesce(b.version, 0)) AS votes, count(*) AS callers,
       sum(r.capacity)::bigint AS capacity, sum(r.in_flight)::bigint AS in_flight, avg(r.latency) AS latency, sum(r.calls)::bigint AS calls,
       sum(r.failures)::bigint AS failures, q.at
  FROM q, r LEFT JOIN holdfast.breaker b ON b.dependency = r.dependency AND b.shard = r.shard
 GROUP BY r.dependency, r.shard, b.value, b.version, q.at
