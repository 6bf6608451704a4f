-- attempts: every attempt of a job, also the running one and the one that completed it. ?1 job, ?2 after this epoch, ?3 limit
SELECT a.epoch, a.generation, a.attempt, a.started_at, a.ended_at, a.outcome, a.failure, s.worker,
       CASE WHEN a.outcome NOT IN ('timed_out', 'cancelled') THEN coalesce(a.cost, 1.0) END AS cost,
       (SELECT lines FROM holdfast_attempt_log g WHERE g.job = a.job AND g.epoch = a.epoch) AS logs,
       (SELECT text FROM holdfast_traceback t WHERE t.key = a.traceback) AS traceback
  FROM (SELECT job, epoch, generation, attempt, started_at, ended_at, outcome, failure, session, traceback, cost
          FROM holdfast_attempt WHERE job = (SELECT id FROM holdfast_job WHERE uid = ?1)
        UNION ALL
        SELECT id, epoch, generation, attempt, claimed_at, finished_at, CASE phase WHEN 3 THEN 'complete' END, NULL, session, NULL, cost
          FROM holdfast_job WHERE uid = ?1 AND phase IN (2, 3) AND epoch > 0) a
  LEFT JOIN holdfast_session s ON s.id = a.session WHERE a.epoch > ?2 ORDER BY a.epoch LIMIT ?3
