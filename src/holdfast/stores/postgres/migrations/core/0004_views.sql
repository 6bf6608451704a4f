-- Jobs as users see them: one row each, with names in place of numbers.

CREATE VIEW holdfast.jobs AS
SELECT j.id, n.task, n.queue, j.owner, -j.prio AS priority,
       CASE WHEN f.state = 3 THEN 'complete' WHEN f.state = 4 THEN 'failed' WHEN f.state = 5 THEN 'cancelled'
            WHEN l.job_id IS NOT NULL THEN 'processing' ELSE 'queued' END AS state,
       coalesce(g.generation, 1) AS generation,
       coalesce(l.epoch, f.epoch, a.epoch, 0) AS epoch,
       coalesce(r.attempt, d.attempt, l.attempt, f.attempt, 0) AS attempt,
       j.max_attempts,
       coalesce(r.crashes, d.crashes, l.crashes, f.crashes, 0) AS crashes,
       coalesce(CASE WHEN isfinite(d.run_at) THEN d.run_at END, r.run_at, l.run_at, f.run_at, g.queued_at, j.created_at) AS run_at,
       j.created_at,
       coalesce(g.queued_at, j.created_at) AS queued_at,
       coalesce((SELECT min(x.started_at) FROM holdfast.attempt x
                  WHERE x.job_id = j.id AND x.generation = coalesce(g.generation, 1)), l.claimed_at, f.started_at) AS started_at,
       f.finished_at,
       coalesce(l.claimed_at, f.started_at, a.started_at) AS last_attempt_at,
       greatest(j.created_at, g.queued_at, a.ended_at, l.claimed_at, f.finished_at, f.expired_at) AS updated_at,
       CASE WHEN g.job_id IS NULL THEN j.deadline_at ELSE g.deadline_at END AS deadline_at,
       f.expired_at,
       s.worker AS leased_by,
       least(s.expires_at, l.run_until) AS lease_expires_at,
       f.error_code, f.error_message,
       CASE WHEN f.state IS DISTINCT FROM 3 THEN
            (SELECT jsonb_build_object('code', x.failure ->> 'code', 'message', x.failure ->> 'message', 'at', x.ended_at,
                                       'attempt', x.attempt)
               FROM holdfast.attempt x
              WHERE x.job_id = j.id AND x.failure IS NOT NULL AND x.outcome <> 'timed_out' ORDER BY x.epoch DESC LIMIT 1) END AS last_failure,
       CASE WHEN g.manual_retries > 0 AND NOT EXISTS
                 (SELECT FROM holdfast.attempt x
                   WHERE x.job_id = j.id AND x.epoch > coalesce(g.manual_epoch, 0) AND x.outcome IN ('retry', 'reclaimed')
                     AND (f.state IS NULL OR x.epoch < f.epoch OR f.state = 3))
            THEN 'MANUAL' ELSE 'AUTOMATIC' END AS retry_type,
       coalesce(g.manual_retries, 0) AS manual_retry_count,
       f.result, coalesce(j.tags, '{}') AS tags, j.payload, l.progress, j.key
  FROM holdfast.job j
  LEFT JOIN holdfast.life g ON g.job_id = j.id
  JOIN holdfast.lane n ON n.id = coalesce(g.lane, j.lane)
  LEFT JOIN holdfast.ready r ON r.id = j.id
  LEFT JOIN holdfast.deferred d ON d.id = j.id
  LEFT JOIN holdfast.lease l ON l.job_id = j.id
  LEFT JOIN holdfast.session s ON s.id = l.session_id
  LEFT JOIN holdfast.done f ON f.job_id = j.id
  LEFT JOIN LATERAL (SELECT x.epoch, x.started_at, x.ended_at FROM holdfast.attempt x
                      WHERE x.job_id = j.id ORDER BY x.epoch DESC LIMIT 1) a ON true;
