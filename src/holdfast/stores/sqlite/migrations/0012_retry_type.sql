-- A job's retry_type is AUTOMATIC from its first moment, and MANUAL after a retry by hand.
DROP VIEW holdfast_jobs;
CREATE VIEW holdfast_jobs AS
SELECT j.uid AS id, l.task, l.queue, j.owner, -j.prio AS priority,
       CASE j.phase WHEN 0 THEN 'queued' WHEN 1 THEN 'queued' WHEN 2 THEN 'processing'
                    WHEN 3 THEN 'complete' WHEN 4 THEN 'failed' ELSE 'cancelled' END AS state,
       j.generation, j.epoch, j.attempt, j.max_attempts, j.crashes, j.run_at, j.created_at, j.queued_at,
       j.started_at, j.finished_at, j.claimed_at AS last_attempt_at, j.updated_at, j.deadline_at, j.expired_at,
       CASE j.phase WHEN 2 THEN s.worker END AS leased_by,
       CASE j.phase WHEN 2 THEN min(s.expires_mono, coalesce(j.run_until_mono, s.expires_mono)) END AS lease_expires_mono,
       j.error_code, j.error_message, j.last_failure, coalesce(j.retry_type, 'AUTOMATIC') AS retry_type, j.manual_retries AS manual_retry_count,
       j.result, j.tags, j.payload, j.progress, j.key, j.id AS number
  FROM holdfast_job j JOIN holdfast_lane l ON l.id = j.lane LEFT JOIN holdfast_session s ON s.id = j.session;
