-- cancel: queued or processing → cancelled. end_attempt has written the attempt's record before.
UPDATE holdfast_job SET phase = 5, finished_at = :now, updated_at = :now, session = NULL, run_until_mono = NULL, progress = NULL,
       settle_event = NULL
 WHERE uid = :uid AND {phase may cancel}
RETURNING epoch, attempt
