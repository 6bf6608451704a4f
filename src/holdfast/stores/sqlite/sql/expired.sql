-- Leases that have expired: their session has ended (or is of another boot), or the attempt has passed its hard timeout.
-- +j.id: in the order of ids SQLite would read all jobs, finished ones too, instead of the few that are leased.
SELECT j.uid AS job_id, j.epoch, j.lane, j.attempt, j.max_attempts, j.crashes, j.max_crashes, s.worker,
       s.boot = :boot AND s.expires_mono > :mono AS overran
  FROM holdfast_job j JOIN holdfast_session s ON s.id = j.session
 WHERE j.phase = 2 AND (s.boot <> :boot OR s.expires_mono <= :mono OR j.run_until_mono + :margin < :mono)
 ORDER BY +j.id LIMIT :limit
