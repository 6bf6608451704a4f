-- retry of a finished job: failed or cancelled → queued, as a new generation. The epoch stays, because it must only grow.
-- :lane null: its own
UPDATE holdfast_job
   SET phase = 0, generation = generation + 1, attempt = 0, crashes = 0, error_code = NULL, error_message = NULL,
       started_at = NULL, finished_at = NULL, settle_event = NULL, queued_at = :now, run_at = :now, ord = :now, updated_at = :now,
       deadline_at = :now + sla, lane = coalesce(:lane, lane), retry_type = 'MANUAL', manual_retries = manual_retries + 1
 WHERE uid = :uid AND phase >= 3 AND {phase may retry}
RETURNING id, epoch, dedupe
