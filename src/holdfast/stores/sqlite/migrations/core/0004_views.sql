-- Jobs and events as users see them: names in place of numbers, and one row for each move of a job.

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

CREATE VIEW holdfast_events AS
SELECT e.seq * 10000 + m.key AS id, e.at, e.kind, m.value ->> 0 AS job_id, m.value ->> 1 AS epoch,
       m.value ->> 2 AS attempt, m.value -> 3 AS meta
  FROM holdfast_event e, json_each(e.moves) m;

-- Short names, where tables of the user have not taken them.
CREATE VIEW IF NOT EXISTS jobs AS SELECT * FROM holdfast_jobs;
CREATE VIEW IF NOT EXISTS events AS SELECT * FROM holdfast_events;
