-- Attempts that run too long: their leases are current, but they began longer ago than their task allows.
-- $1 tasks, $2 how long an attempt of each may take, $3 limit, $4 only of this owner, $5 only these jobs (null: all)
SELECT l.job_id, l.epoch, l.lane, l.attempt, j.max_attempts, l.crashes, j.max_crashes, s.worker, false AS overran
  FROM unnest($1::text[], $2::interval[]) AS m(task, most)
  JOIN holdfast.lane n ON n.task = m.task
  JOIN holdfast.lease l ON l.lane = n.id
  JOIN holdfast.session s ON s.id = l.session_id
  JOIN holdfast.job j ON j.id = l.job_id
 WHERE s.expires_at > holdfast.clock() AND l.claimed_at < holdfast.clock() - m.most
   AND (l.run_until IS NULL OR l.run_until >= holdfast.clock())
   AND ($4::text IS NULL OR j.owner = $4::text) AND ($5::uuid[] IS NULL OR l.job_id = ANY ($5::uuid[]))
 ORDER BY l.claimed_at, l.job_id LIMIT $3::int
