-- claim of one job by its id, whether it is due or not: queued → processing. A job that waits for its key is not claimed.
-- $1 session, $2 job, $3 generation
WITH s AS MATERIALIZED (
    SELECT id FROM holdfast.session WHERE id = $1::bigint AND expires_at > holdfast.clock()
), r AS (
    DELETE FROM holdfast.ready WHERE {ready may claim} AND id = $2::uuid AND generation = $3::smallint AND EXISTS (SELECT FROM s)
    RETURNING id, lane, prio, attempt, crashes, generation, run_at, deadline_at, key
), d AS (
    DELETE FROM holdfast.deferred WHERE {deferred may claim} AND id = $2::uuid AND generation = $3::smallint AND isfinite(run_at) AND EXISTS (SELECT FROM s)
    RETURNING id, lane, prio, attempt, crashes, generation, run_at, deadline_at, key
), taken AS MATERIALIZED (
    SELECT *, nextval('holdfast.epoch') AS epoch FROM (SELECT * FROM r UNION ALL SELECT * FROM d) either
), q AS MATERIALIZED (
    SELECT holdfast.event_number() AS seq, holdfast.clock() AS at FROM (SELECT 1 FROM taken LIMIT 1) one
), j AS MATERIALIZED (
    SELECT t.*, w.*
      FROM taken t
     CROSS JOIN LATERAL (SELECT payload, created_at, {claimed columns} FROM holdfast.job WHERE id = t.id OFFSET 0) w
), l AS (
    INSERT INTO holdfast.lease (job_id, epoch, session_id, claim_seq, claimed_at, lane, prio, attempt, crashes, generation, run_at,
                                run_until, deadline_at, key)
    SELECT j.id, j.epoch, $1::bigint, q.seq, q.at, j.lane, j.prio, j.attempt + 1, j.crashes, j.generation, j.run_at,
           q.at + j.timeout, j.deadline_at, j.key
      FROM j, q
), e AS (
    INSERT INTO holdfast.event (seq, at, session_id, kind, job_ids, epochs, attempts, lane, waits)
    SELECT q.seq, q.at, $1::bigint, 2, ARRAY[j.id], ARRAY[j.epoch], ARRAY[(j.attempt + 1)::smallint], j.lane,
           ARRAY[holdfast.milliseconds(q.at - coalesce(j.run_at, CASE WHEN j.generation > 1 THEN
               (SELECT queued_at FROM holdfast.life WHERE job_id = j.id) END, j.created_at))]
      FROM q, j
)
SELECT j.id AS job_id, j.epoch, j.lane, j.prio, j.key, j.payload, j.attempt + 1 AS attempt, j.crashes, j.generation,
       j.deadline_at - q.at AS until_deadline,
       q.at - coalesce((SELECT queued_at FROM holdfast.life WHERE job_id = j.id AND j.generation > 1), j.created_at) AS waited,
       {claimed columns}
  FROM q, j
