-- Attempts that run too long: their leases are current, but they began longer ago than their task allows. :limits is a JSON object:
-- microseconds by task. :owner and :ids (a JSON array) filter the jobs; null: all.
SELECT j.uid AS job_id, j.epoch, j.lane, j.attempt, j.max_attempts, j.crashes, j.max_crashes, s.worker, false AS overran
  FROM holdfast_job j JOIN holdfast_session s ON s.id = j.session JOIN holdfast_lane l ON l.id = j.lane
  JOIN json_each(:limits) m ON m.key = l.task
 WHERE j.phase = 2 AND s.boot = :boot AND s.expires_mono > :mono AND j.claimed_mono < :mono - m.value
   AND (j.run_until_mono IS NULL OR j.run_until_mono >= :mono)
   AND (:owner IS NULL OR j.owner = :owner) AND (:ids IS NULL OR j.uid IN (SELECT value FROM json_each(:ids)))
 ORDER BY j.claimed_mono, j.id LIMIT :limit
