-- Write down the attempts that end without completing, while the jobs still show them.
-- item: [uid, epoch, place of its failure in :failures or null, …]; a failure that many jobs share is told once.
INSERT INTO holdfast_attempt (job, epoch, generation, attempt, session, started_at, ended_at, outcome, failure, traceback,
                              settle_event)
SELECT j.id, j.epoch, j.generation, j.attempt, j.session, j.claimed_at, :now, :outcome, :failures ->> s.told,
       :failures ->> s.told ->> 'traceback', :seq
  FROM (SELECT value ->> 0 AS uid, value ->> 1 AS epoch, value ->> 2 AS told FROM json_each(:settled) LIMIT -1) s
  JOIN holdfast_job j ON j.uid = s.uid
 WHERE j.epoch = s.epoch AND j.phase = 2 AND (:any_deadline OR j.deadline_at IS NULL OR j.deadline_at >= :now)
