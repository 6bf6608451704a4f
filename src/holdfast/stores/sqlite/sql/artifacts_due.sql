-- The artifacts that have to be deleted before `purge_results` or `purge_jobs` removes their jobs. A null keeps for ever.
SELECT j.uid AS job_id, a.epoch, a.reference, a.name, a.bytes, a.at
  FROM holdfast_artifact a JOIN holdfast_job j ON j.id = a.job JOIN holdfast_lane l ON l.id = j.lane
 WHERE j.phase >= 3 AND (:task IS NULL OR l.task = :task)
   AND l.task NOT IN (SELECT value FROM json_each(:but))
   AND ((j.phase = 3 AND j.finished_at <= :results)
        OR (j.finished_at <= :jobs
            AND NOT EXISTS (SELECT 1 FROM holdfast_dead_letter d WHERE d.job = j.id)))
 LIMIT :limit
