-- fail, reclaim, time_out: → failed, for a job that failed for good. end_attempt has written the attempt's record before.
-- :epoch null: under any lease, and queued jobs too; else only under this lease. :deadline as in end_attempt
UPDATE holdfast_job
   SET phase = 4, finished_at = :now, updated_at = :now, error_code = :code, error_message = :message,
       last_failure = coalesce(:last_failure || attempt || '}', last_failure), crashes = coalesce(crashes + :crashes, 0),
       session = NULL, run_until_mono = NULL, progress = NULL, settle_event = NULL
 WHERE uid = :uid AND (:epoch IS NULL OR (epoch = :epoch AND phase = 2)) AND {phase may}
   AND CASE :deadline WHEN 0 THEN true WHEN 1 THEN deadline_at < :now ELSE coalesce(deadline_at >= :now, true) END
RETURNING id, epoch, attempt
