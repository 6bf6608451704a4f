-- claim: queued → processing. The epoch is the fence; attempt cannot be: it goes back down when a job is released.
UPDATE holdfast_job
   SET phase = 2, attempt = attempt + 1, epoch = :seq, session = :session, claimed_at = :now, updated_at = :now,
       started_at = coalesce(started_at, :now), run_until_mono = :mono + timeout,
       claimed_mono = :mono
 WHERE id IN (SELECT value FROM json_each(:ids)) AND phase = 0 AND {phase may claim}
