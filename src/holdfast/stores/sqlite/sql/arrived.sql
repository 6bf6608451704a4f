-- Which lines the jobs with these numbers entered that still wait: :after is the last number that was looked at.
SELECT max(id), lane, prio, owner, max(waits)
  FROM (SELECT id, lane, prio, owner, phase = 0 AS waits FROM holdfast_job WHERE id > :after ORDER BY id LIMIT :limit)
 GROUP BY lane, prio, owner
