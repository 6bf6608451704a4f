-- Deferred jobs that are due step into line, at the place their time gives them.
UPDATE holdfast_job SET phase = 0, ord = run_at
 WHERE id IN (SELECT id FROM holdfast_job WHERE phase = 1 AND run_at <= :now ORDER BY run_at LIMIT :limit)
