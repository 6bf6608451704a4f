-- complete: processing → complete, for those whose lease is current and whose deadline has not passed.
UPDATE holdfast_job AS job
   SET phase = 3, result = s.value ->> 2, cost = s.value ->> 3, finished_at = :now, updated_at = :now, settle_event = :seq,
       crashes = 0, last_failure = NULL, run_until_mono = NULL, progress = NULL
  FROM json_each(:settled) s
 WHERE job.uid = s.value ->> 0 AND job.epoch = s.value ->> 1 AND {job.phase may complete}
   AND (job.deadline_at IS NULL OR job.deadline_at >= :now)
