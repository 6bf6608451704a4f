-- The lines of the ready jobs with numbers above :after, which is the last number that was read.
SELECT max(id), lane, prio, owner, max(waits)
  FROM (SELECT id, lane, prio, owner, phase = 0 AS waits FROM holdfast_job WHERE id > :after ORDER BY id LIMIT :limit)
 GROUP BY lane, prio, owner
