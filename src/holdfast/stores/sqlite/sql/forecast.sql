-- How many deferred jobs will be due in each :bucket of time until :end, by dependency. Each of the two walks along the index, of first
-- attempts and of retries, ends after :most jobs.
SELECT x.tried AS walk, (x.run_at - :now) / :bucket AS place, l.dependency, total(x.tried = 1) AS retries, total(x.tried = 0) AS delayed,
       max(x.run_at) AS last
  FROM (SELECT * FROM (SELECT 0 AS tried, run_at, lane FROM holdfast_job
                        WHERE phase = 1 AND (attempt > 0) = 0 AND run_at > :now AND run_at < :end ORDER BY run_at LIMIT :most)
        UNION ALL
        SELECT * FROM (SELECT 1 AS tried, run_at, lane FROM holdfast_job
                        WHERE phase = 1 AND (attempt > 0) = 1 AND run_at > :now AND run_at < :end ORDER BY run_at LIMIT :most)) x
  JOIN holdfast_lane l ON l.id = x.lane
 GROUP BY walk, place, l.dependency
