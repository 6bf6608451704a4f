-- claim of jobs that a broker has offered: queued → processing, if they are in the offered generation, due, and without a key.
-- Held lanes are skipped as in `claim`, and so are deferred jobs that `promote` would not make ready.
-- $1 session, $2 ids, $3 generations
WITH s AS MATERIALIZED (
    SELECT id FROM holdfast.session WHERE id = $1::bigint AND expires_at > holdfast.clock()
), h AS MATERIALIZED (
    SELECT CASE WHEN holdfast.paused('delayed') THEN '-infinity' ELSE holdfast.clock() END AS due, holdfast.paused('retries') AS no_retries
), w AS MATERIALIZED (
    -- In a SELECT, so that the planner does not see the lengths: it would plan again for each, which takes longer than the claim.
    SELECT u.id, u.generation FROM s, unnest((SELECT $2::uuid[]), (SELECT $3::smallint[])) AS u(id, generation)
), from_ready AS MATERIALIZED (
    SELECT x.t, x.lane FROM w CROSS JOIN LATERAL (
        SELECT r.ctid AS t, r.lane FROM holdfast.ready r
         WHERE {ready may claim} AND r.id = w.id AND r.generation = w.generation AND r.key IS NULL FOR UPDATE SKIP LOCKED) x
), from_deferred AS MATERIALIZED (
    SELECT x.t, x.lane FROM w CROSS JOIN LATERAL (
        SELECT d.ctid AS t, d.lane FROM holdfast.deferred d
         WHERE {deferred may claim} AND d.id = w.id AND d.generation = w.generation AND d.key IS NULL AND d.run_at <= (SELECT due FROM h)
           AND (d.attempt = 0 OR NOT (SELECT no_retries FROM h)) FOR UPDATE SKIP LOCKED) x
), held AS MATERIALIZED (
    SELECT CASE WHEN EXISTS (SELECT FROM holdfast.hold) OR EXISTS (SELECT FROM holdfast.breaker WHERE holding)
                THEN holdfast.held_lanes(ARRAY(SELECT lane FROM from_ready UNION SELECT lane FROM from_deferred), false) ELSE '{}' END AS lanes
), r AS (
    DELETE FROM holdfast.ready WHERE ctid = ANY (ARRAY(SELECT i.t FROM from_ready i, held WHERE i.lane <> ALL (held.lanes)))
    RETURNING id, lane, prio, attempt, crashes, generation, run_at, deadline_at, key
), d AS (
    DELETE FROM holdfast.deferred WHERE ctid = ANY (ARRAY(SELECT i.t FROM from_deferred i, held WHERE i.lane <> ALL (held.lanes)))
    RETURNING id, lane, prio, attempt, crashes, generation, run_at, deadline_at, key
), j AS MATERIALIZED (
    SELECT t.*, nextval('holdfast.epoch') AS epoch, w.*
      FROM (SELECT * FROM r UNION ALL SELECT * FROM d) t
     CROSS JOIN LATERAL (SELECT payload, created_at, {claimed columns}
                           FROM holdfast.job WHERE id = t.id OFFSET 0) w
), q AS MATERIALIZED (
    SELECT holdfast.event_number() AS seq, holdfast.clock() AS at FROM (SELECT 1 FROM j LIMIT 1) one
), l AS (
    INSERT INTO holdfast.lease (job_id, epoch, session_id, claim_seq, claimed_at, lane, prio, attempt, crashes, generation, run_at,
                                run_until, deadline_at, key)
    SELECT j.id, j.epoch, $1::bigint, q.seq, q.at, j.lane, j.prio, j.attempt + 1, j.crashes, j.generation, j.run_at,
           q.at + j.timeout, j.deadline_at, j.key
      FROM j, q
), e AS (
    INSERT INTO holdfast.event (seq, at, session_id, kind, job_ids, epochs, attempts, lane, lanes, waits)
    SELECT q.seq, q.at, $1::bigint, 2, a.ids, a.epochs, a.attempts, CASE WHEN a.first = a.last THEN a.first END,
           CASE WHEN a.first < a.last THEN a.lanes END, a.waits
      FROM q, LATERAL (SELECT array_agg(id) AS ids, array_agg(epoch) AS epochs, array_agg((attempt + 1)::smallint) AS attempts,
                              min(lane) AS first, max(lane) AS last, array_agg(lane) AS lanes,
                              array_agg(holdfast.milliseconds(q.at - coalesce(run_at, CASE WHEN generation > 1 THEN
                                  (SELECT queued_at FROM holdfast.life WHERE job_id = j.id) END, created_at))) AS waits FROM j) a
)
SELECT j.id AS job_id, j.epoch, j.lane, j.prio, j.key, j.payload, j.attempt + 1 AS attempt, j.crashes, j.generation,
       j.deadline_at - q.at AS until_deadline,
       q.at - coalesce((SELECT queued_at FROM holdfast.life WHERE job_id = j.id AND j.generation > 1), j.created_at) AS waited,
       {claimed columns}
  FROM q, j
 ORDER BY array_position($2::uuid[], j.id)
