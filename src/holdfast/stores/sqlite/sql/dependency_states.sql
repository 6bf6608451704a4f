-- Every dependency that has a breaker or a live report, as all workers together see it.
SELECT d.dependency, d.shard, b.value AS breaker, count(r.session) AS callers,
       total(r.vote AND r.version = coalesce(b.version, 0)) AS votes, total(r.capacity) AS capacity,
       total(r.in_flight) AS in_flight, avg(r.latency) AS latency, total(r.calls) AS calls, total(r.failures) AS failures
  FROM (SELECT dependency, shard FROM holdfast_breaker
        UNION SELECT dependency, shard FROM holdfast_report WHERE at BETWEEN :since AND :until) d
  LEFT JOIN holdfast_breaker b ON b.dependency = d.dependency AND b.shard = d.shard
  LEFT JOIN holdfast_report r ON r.dependency = d.dependency AND r.shard = d.shard AND r.at BETWEEN :since AND :until
 GROUP BY d.dependency, d.shard
