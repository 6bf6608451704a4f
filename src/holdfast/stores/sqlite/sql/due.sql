-- When the next deferred job is due, among those that no hold keeps deferred (see `promote`).
SELECT min(run_at)
  FROM (SELECT run_at FROM (SELECT run_at FROM holdfast_job WHERE phase = 1 AND (attempt > 0) = 0 ORDER BY run_at LIMIT 1)
         WHERE NOT EXISTS (SELECT 1 FROM holdfast_hold WHERE kind = 'maintenance' AND name = 'delayed' AND (until IS NULL OR until > :now))
        UNION ALL
        SELECT run_at FROM (SELECT run_at FROM holdfast_job WHERE phase = 1 AND (attempt > 0) = 1 ORDER BY run_at LIMIT 1)
         WHERE NOT EXISTS (SELECT 1 FROM holdfast_hold WHERE kind = 'maintenance' AND name IN ('delayed', 'retries')
                              AND (until IS NULL OR until > :now)))
