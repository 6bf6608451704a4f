-- promote: make deferred jobs ready that are due, at the place in line that their time gives them. While maintenance task `delayed` is
-- paused, no job becomes ready; while `retries` is paused, none that was attempted before.
UPDATE holdfast_job SET phase = 0, ord = run_at
 WHERE id IN (SELECT id FROM (SELECT id FROM holdfast_job
                               WHERE phase = 1 AND (attempt > 0) = 0
                                 AND run_at <= CASE WHEN EXISTS (SELECT 1 FROM holdfast_hold WHERE kind = 'maintenance' AND name = 'delayed'
                                                                    AND (until IS NULL OR until > :now)) THEN -1 ELSE :now END
                               ORDER BY run_at LIMIT :limit)
              UNION ALL
              SELECT id FROM (SELECT id FROM holdfast_job
                               WHERE phase = 1 AND (attempt > 0) = 1
                                 AND run_at <= CASE WHEN EXISTS (SELECT 1 FROM holdfast_hold WHERE kind = 'maintenance' AND name IN ('delayed', 'retries')
                                                                    AND (until IS NULL OR until > :now)) THEN -1 ELSE :now END
                               ORDER BY run_at LIMIT :limit))
RETURNING lane, prio, owner
