-- Leases that have expired: their session has ended (or is gone: a claim may commit just after), or the attempt has passed its hard
-- timeout.
-- $1 limit, $2 margin, $3 only these jobs (null: all)
SELECT l.job_id, l.epoch, l.lane, l.attempt, j.max_attempts, l.crashes, j.max_crashes, coalesce(s.worker, 'unknown') AS worker,
       coalesce(s.expires_at > holdfast.clock(), false) AS overran
  FROM holdfast.lease l
  LEFT JOIN holdfast.session s ON s.id = l.session_id
  JOIN holdfast.job j ON j.id = l.job_id
 WHERE (s.id IS NULL OR s.expires_at <= holdfast.clock() OR l.run_until + $2::interval < holdfast.clock())
   AND ($3::uuid[] IS NULL OR l.job_id = ANY ($3::uuid[]))
 LIMIT $1::int
