-- retry of a deferred job: due now, in the same generation.
UPDATE holdfast_job SET phase = 0, run_at = :now, ord = :now, updated_at = :now, retry_type = 'MANUAL', manual_retries = manual_retries + 1
 WHERE uid = :uid AND phase = 1 AND {phase may retry}
RETURNING id, epoch, attempt
