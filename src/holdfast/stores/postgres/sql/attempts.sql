-- attempts: every attempt of a job, also the running one and the one that completed it. $1 job, $2 after this epoch, $3 limit
SELECT a.epoch, a.generation, a.attempt, a.started_at, a.ended_at, a.outcome, a.failure, s.worker,
       CASE WHEN a.outcome NOT IN ('timed_out', 'cancelled') THEN coalesce(a.cost, 1) END AS cost,
       (SELECT lines FROM holdfast.attempt_log g WHERE g.job_id = $1 AND g.epoch = a.epoch) AS logs,
       (SELECT text FROM holdfast.traceback t WHERE t.key = a.traceback) AS traceback
  FROM (SELECT epoch, generation, attempt, started_at, ended_at, outcome, failure, session_id, traceback, cost
          FROM holdfast.attempt WHERE job_id = $1
        UNION ALL
        SELECT epoch, generation, attempt, claimed_at, NULL, NULL, NULL, session_id, NULL, NULL FROM holdfast.lease WHERE job_id = $1
        UNION ALL
        SELECT epoch, generation, attempt, started_at, finished_at, 'complete', NULL, session_id, NULL, cost
          FROM holdfast.done WHERE job_id = $1 AND state = 3) a
  LEFT JOIN holdfast.session s ON s.id = a.session_id WHERE a.epoch > $2 ORDER BY a.epoch LIMIT $3
