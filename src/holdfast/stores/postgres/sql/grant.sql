-- Give the free slots of each key to the first jobs that wait for it. A slot is free when its job is neither ready nor processing. The
-- job whose turn it is says how many slots the key has; a job in a slot beyond that number uses up another. Jobs that a hold keeps from
-- becoming ready (see `promote`) continue to wait. Returns how many became ready, and how many slots became free.
-- $1 only these keys (null: all)
WITH RECURSIVE gone AS (
    DELETE FROM holdfast.key_slot s
     WHERE s.key = ANY (coalesce($1::text[], ARRAY(SELECT x.key FROM holdfast.key_slot x)))
       AND NOT EXISTS (SELECT FROM holdfast.ready r WHERE r.id = s.job_id OFFSET 0)
       AND NOT EXISTS (SELECT FROM holdfast.lease l WHERE l.job_id = s.job_id OFFSET 0)
    RETURNING s.key, s.n
), walk AS (
    -- From one key to the next by the index, however many wait for each.
    (SELECT d.key FROM holdfast.deferred d WHERE $1::text[] IS NULL AND d.key IS NOT NULL ORDER BY d.key LIMIT 1)
    UNION ALL
    SELECT n.key FROM walk w CROSS JOIN LATERAL
           (SELECT d.key FROM holdfast.deferred d WHERE d.key > w.key ORDER BY d.key LIMIT 1) n
), h AS MATERIALIZED (
    SELECT n.at, holdfast.place(n.at) AS ord, holdfast.paused('delayed') AS no_delayed, holdfast.paused('retries') AS no_retries
      FROM (SELECT holdfast.clock() AS at OFFSET 0) n
), next AS MATERIALIZED (
    SELECT k.key, f.n, d.id
      FROM h CROSS JOIN (SELECT key FROM walk UNION SELECT unnest($1::text[])) k
     CROSS JOIN LATERAL (
        SELECT coalesce(j.key_slots, 1) AS slots
          FROM (SELECT x.id FROM holdfast.deferred x
                 WHERE x.key = k.key AND (x.run_at = 'infinity' OR (x.run_at <= h.at AND (x.at_once OR NOT (h.no_delayed OR (h.no_retries AND x.attempt > 0)))))
                 ORDER BY x.prio, x.id LIMIT 1) x
         CROSS JOIN LATERAL (SELECT key_slots FROM holdfast.job WHERE id = x.id OFFSET 0) j
     ) w
     CROSS JOIN LATERAL (
        SELECT coalesce(array_agg(s.n), '{}') AS numbers FROM holdfast.key_slot s
         WHERE s.key = k.key AND NOT EXISTS (SELECT FROM gone g WHERE g.key = s.key AND g.n = s.n)
     ) t
     CROSS JOIN LATERAL (
        SELECT n, row_number() OVER (ORDER BY n) AS place FROM generate_series(1, w.slots) n
         WHERE n <> ALL (t.numbers) ORDER BY n LIMIT greatest(w.slots - cardinality(t.numbers), 0)
     ) f
     JOIN LATERAL (
        SELECT x.id, row_number() OVER (ORDER BY x.prio, x.id) AS place FROM holdfast.deferred x
         WHERE x.key = k.key AND (x.run_at = 'infinity' OR (x.run_at <= h.at AND (x.at_once OR NOT (h.no_delayed OR (h.no_retries AND x.attempt > 0)))))
         ORDER BY x.prio, x.id LIMIT greatest(w.slots - cardinality(t.numbers), 0)
     ) d ON d.place = f.place
), slot AS (
    -- In one order, so that two of these cannot wait for each other.
    INSERT INTO holdfast.key_slot (key, n, job_id) SELECT key, n, id FROM next ORDER BY key, n ON CONFLICT DO NOTHING RETURNING job_id
), moved AS (
    DELETE FROM holdfast.deferred WHERE id IN (SELECT job_id FROM slot) RETURNING *
), r AS (
    INSERT INTO holdfast.ready (ord, id, lane, prio, attempt, crashes, generation, run_at, deadline_at, key)
    SELECT h.ord, m.id, m.lane, m.prio, m.attempt, m.crashes, m.generation,
           CASE WHEN isfinite(m.run_at) THEN m.run_at END, m.deadline_at, m.key
      FROM moved m, h
)
SELECT (SELECT count(*) FROM moved), (SELECT count(*) FROM gone)
