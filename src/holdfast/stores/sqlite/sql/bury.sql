-- fail (bury), reclaim (bury), time_out: processing or queued → failed.
UPDATE holdfast_job
   SET phase = 4, finished_at = :now, updated_at = :now, error_code = :code, error_message = :message,
       last_failure = coalesce(:last_failure, last_failure), crashes = coalesce(crashes + :crashes, 0),
       session = NULL, run_until_mono = NULL, progress = NULL, settle_event = NULL
 WHERE id = :id AND phase <= 2
