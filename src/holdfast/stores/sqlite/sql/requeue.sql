-- fail (retry), release, reclaim: processing → queued. The attempts' records were written just before, by end_attempt.
-- item: [uid, epoch, place of its failure in :told or null, delay]. The LIMIT keeps them apart from the update: otherwise each
-- mention of a field would read its item again. What :told says ends where the attempt follows.
-- :back attempts given back, :crashes to add or null to reset
UPDATE holdfast_job AS job
   SET phase = s.delay > 0, run_at = :now + s.delay, ord = :now + s.delay, attempt = attempt - :back,
       crashes = coalesce(crashes + :crashes, 0), last_failure = coalesce((:told ->> s.told) || attempt || '}', last_failure),
       retry_type = CASE WHEN s.told IS NULL THEN retry_type ELSE 'AUTOMATIC' END,
       session = NULL, run_until_mono = NULL, progress = NULL, settle_event = NULL, updated_at = :now
  FROM (SELECT value ->> 0 AS uid, value ->> 1 AS epoch, value ->> 2 AS told, value ->> 3 AS delay
          FROM json_each(:settled) LIMIT -1) s
 WHERE job.uid = s.uid AND job.epoch = s.epoch AND job.phase = 2
   AND (:any_deadline OR job.deadline_at IS NULL OR job.deadline_at >= :now)
