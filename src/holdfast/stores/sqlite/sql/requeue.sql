-- fail (retry), release, reclaim: processing → queued. The attempt's record was written just before, by end_attempt.
-- item: [uid, epoch, outcome, place of its failure in :told or null, delay, attempt given back, crashes to add or null to reset]
UPDATE holdfast_job AS job
   SET phase = CASE WHEN s.value ->> 4 > 0 THEN 1 ELSE 0 END, run_at = :now + (s.value ->> 4), ord = :now + (s.value ->> 4),
       attempt = attempt - (s.value ->> 5), crashes = coalesce(crashes + (s.value ->> 6), 0),
       last_failure = coalesce(json_set(json_extract(:told, '$[' || (s.value ->> 3) || ']'), '$.attempt', attempt), last_failure),
       retry_type = CASE WHEN s.value ->> 3 IS NULL THEN retry_type ELSE 'AUTOMATIC' END,
       session = NULL, run_until_mono = NULL, progress = NULL, settle_event = NULL, updated_at = :now
  FROM json_each(:settled) s
 WHERE job.uid = s.value ->> 0 AND job.epoch = s.value ->> 1 AND job.phase = 2
   AND (:any_deadline OR job.deadline_at IS NULL OR job.deadline_at >= :now)
