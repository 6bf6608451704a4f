-- fail, release, reclaim: processing → queued. end_attempt has written the attempts' records before.
-- item: [uid, epoch, place of its failure in :failures or null, delay]. The LIMIT materializes the items: without it, each use of
-- a field would parse its item again. A text in :failures ends before the number of the attempt, which is appended here.
-- :back attempts to give back, :crashes to add (null: reset to 0), :deadline as in end_attempt
UPDATE holdfast_job AS job
   SET phase = s.delay > 0, run_at = :now + s.delay, ord = :now + s.delay, attempt = attempt - :back,
       crashes = coalesce(crashes + :crashes, 0),
       last_failure = coalesce((:failures ->> s.failure) || attempt || '}', last_failure),
       retry_type = CASE WHEN s.failure IS NULL THEN retry_type ELSE 'AUTOMATIC' END,
       session = NULL, run_until_mono = NULL, progress = NULL, settle_event = NULL, updated_at = :now
  FROM (SELECT value ->> 0 AS uid, value ->> 1 AS epoch, value ->> 2 AS failure, value ->> 3 AS delay
          FROM json_each(:settled) LIMIT -1) s
 WHERE job.uid = s.uid AND job.epoch = s.epoch AND {job.phase may}
   AND CASE :deadline WHEN 0 THEN true WHEN 1 THEN job.deadline_at < :now ELSE coalesce(job.deadline_at >= :now, true) END
