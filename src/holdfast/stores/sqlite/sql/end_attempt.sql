-- Write down the attempts that end without completing, while the jobs still show them.
-- item: [uid, epoch, outcome, place of its failure in :failures or null, …]. Each ->> reads its whole item again, so items are
-- short, and a failure that many jobs share is told once.
INSERT INTO holdfast_attempt (job, epoch, generation, attempt, session, started_at, ended_at, outcome, failure, settle_event)
SELECT j.id, j.epoch, j.generation, j.attempt, j.session, j.claimed_at, :now, s.value ->> 2,
       json_extract(:failures, '$[' || (s.value ->> 3) || ']'), :seq
  FROM json_each(:settled) s JOIN holdfast_job j ON j.uid = s.value ->> 0
 WHERE j.epoch = s.value ->> 1 AND j.phase = 2 AND (:any_deadline OR j.deadline_at IS NULL OR j.deadline_at >= :now)
