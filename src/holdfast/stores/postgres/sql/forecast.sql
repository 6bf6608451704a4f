-- How many deferred jobs will be due in each piece of time, by dependency, in one walk along the index that ends after $3 jobs. Returns
-- at least one row, for the time. $1 until when, as a duration, $2 the length of a piece, $3 limit
WITH q AS MATERIALIZED (
    SELECT holdfast.clock() AS at
), x AS MATERIALIZED (
    SELECT run_at, lane, attempt FROM holdfast.deferred
     WHERE run_at > (SELECT at FROM q) AND run_at < (SELECT at FROM q) + $1::interval
     ORDER BY run_at, id LIMIT $3::int
)
SELECT q.at, floor(extract(epoch FROM x.run_at - q.at) / extract(epoch FROM $2::interval))::int AS place, l.dependency,
       count(*) FILTER (WHERE x.attempt > 0) AS retries, count(*) FILTER (WHERE x.attempt = 0) AS delayed, max(x.run_at) AS last
  FROM q LEFT JOIN x ON true LEFT JOIN holdfast.lane l ON l.id = x.lane
 GROUP BY q.at, place, l.dependency
