-- cancel: queued or processing → cancelled.
UPDATE holdfast_job SET phase = 5, finished_at = :now, updated_at = :now, session = NULL, run_until_mono = NULL, progress = NULL,
       settle_event = NULL
 WHERE id = :id AND phase <= 2
