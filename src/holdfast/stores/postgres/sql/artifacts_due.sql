-- The artifacts that have to be deleted before `purge_results` or `purge_jobs` removes their jobs.
-- $1 results are kept for (null: for ever), $2 jobs are kept for, $3 task (null: all), $4 limit, $5 all but these tasks
SELECT a.job_id, a.epoch, a.reference, a.name, a.bytes, a.at
  FROM holdfast.artifact a JOIN holdfast.done f ON f.job_id = a.job_id
  JOIN holdfast.job j ON j.id = a.job_id JOIN holdfast.lane n ON n.id = j.lane
 WHERE ($3::text IS NULL OR n.task = $3::text)
   AND n.task <> ALL ($5::text[])
   AND ((f.state = 3 AND f.finished_at <= holdfast.clock() - $1::interval)
        OR (f.finished_at <= holdfast.clock() - $2::interval
            AND NOT EXISTS (SELECT FROM holdfast.dead_letter b WHERE b.job_id = a.job_id)))
 LIMIT $4::int
