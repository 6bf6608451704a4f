-- fail, release, reclaim, time_out, cancel: write the records of attempts that end without completing. This comes before the
-- statement that moves the jobs, which clears what the record needs, and it decides: what it does not match does not move.
-- item: [uid, epoch (null: under any lease), place of its failure in :failures or null, delay, cost (null: 1)]
-- :deadline 0 any, 1 passed, 2 not passed
INSERT INTO holdfast_attempt (job, epoch, generation, attempt, session, started_at, ended_at, outcome, failure, traceback,
                              settle_event, cost)
SELECT j.id, j.epoch, j.generation, j.attempt, j.session, j.claimed_at, :now, :outcome, :failures ->> s.failure,
       :failures ->> s.failure ->> 'traceback', :seq, s.cost
  FROM (SELECT value ->> 0 AS uid, value ->> 1 AS epoch, value ->> 2 AS failure, value ->> 4 AS cost FROM json_each(:settled) LIMIT -1) s
  JOIN holdfast_job j ON j.uid = s.uid
 WHERE j.epoch = coalesce(s.epoch, j.epoch) AND j.phase = 2 AND {j.phase may}
   AND CASE :deadline WHEN 0 THEN true WHEN 1 THEN j.deadline_at < :now ELSE coalesce(j.deadline_at >= :now, true) END
