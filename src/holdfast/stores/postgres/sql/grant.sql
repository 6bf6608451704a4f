-- Give each key that is free to the first job waiting for it. A slot is free when its job is neither in line nor
-- processing. Returns how many stepped into line.
WITH gone AS (
    DELETE FROM holdfast.key_slot s
     WHERE NOT EXISTS (SELECT FROM holdfast.ready r WHERE r.id = s.job_id)
       AND NOT EXISTS (SELECT FROM holdfast.lease l WHERE l.job_id = s.job_id)
    RETURNING s.key
), next AS MATERIALIZED (
    SELECT DISTINCT ON (d.key) d.key, d.id
      FROM holdfast.deferred d
     WHERE d.key IS NOT NULL AND (d.run_at = 'infinity' OR d.run_at <= holdfast.clock())
       AND NOT EXISTS (SELECT FROM holdfast.key_slot s WHERE s.key = d.key AND s.key <> ALL (ARRAY(SELECT key FROM gone)))
     ORDER BY d.key, d.prio, d.id
), slot AS (
    INSERT INTO holdfast.key_slot (key, job_id) SELECT key, id FROM next ON CONFLICT DO NOTHING RETURNING job_id
), moved AS (
    DELETE FROM holdfast.deferred WHERE id IN (SELECT job_id FROM slot) RETURNING *
), r AS (
    INSERT INTO holdfast.ready (ord, id, lane, prio, attempt, crashes, generation, run_at, deadline_at, key)
    SELECT holdfast.place(holdfast.clock()), m.id, m.lane, m.prio, m.attempt, m.crashes, m.generation,
           CASE WHEN isfinite(m.run_at) THEN m.run_at END, m.deadline_at, m.key
      FROM moved m
)
SELECT (SELECT count(*) FROM moved), (SELECT count(*) FROM gone)
