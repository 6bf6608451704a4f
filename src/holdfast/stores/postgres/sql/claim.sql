-- claim: queued → processing. The epoch is the fence; attempt cannot be: it goes back down when a job is released.
-- One probe for each (lane, prio) in the order of preference. The lateral scans stop when the outer LIMIT is full.
-- The equality on lane and prio makes (ord, id) > cursor a boundary of the index scan, so dead rows before it are never visited.
-- Held lanes are skipped. Usually nothing is held, which two EXISTS find out.
-- $1 session, $2 lanes, $3 prios, $4 cursor ords, $5 cursor ids, $6 ends, $7 limit, $8 trial: open breakers do not hold,
-- $9 limit for each probe
WITH s AS MATERIALIZED (
    SELECT id FROM holdfast.session WHERE id = $1::bigint AND expires_at > holdfast.clock()
), pick AS MATERIALIZED (
    SELECT r.t
      FROM s, unnest($2::int[], $3::smallint[], $4::bigint[], $5::uuid[], $6::bigint[]) AS p(lane, prio, c_ord, c_id, c_end)
     CROSS JOIN LATERAL (
        SELECT x.ctid AS t FROM holdfast.ready x
         WHERE {ready may claim} AND x.lane = p.lane AND x.prio = p.prio AND (x.ord, x.id) > (p.c_ord, p.c_id) AND x.ord < p.c_end
         ORDER BY x.ord, x.id LIMIT $9::int
           FOR UPDATE SKIP LOCKED
     ) r
     WHERE p.lane <> ALL ((SELECT CASE WHEN EXISTS (SELECT FROM holdfast.hold) OR EXISTS (SELECT FROM holdfast.breaker WHERE holding)
                                       THEN holdfast.held_lanes($2::int[], $8::boolean) ELSE '{}' END)::int[])
     LIMIT $7::int
), q AS MATERIALIZED (
    -- Only when something was picked: an empty poll must not write.
    SELECT holdfast.event_number() AS seq, holdfast.clock() AS at FROM (SELECT 1 FROM pick LIMIT 1) one
), taken AS (
    -- A TID scan. A join by key would read the whole line again.
    DELETE FROM holdfast.ready WHERE ctid = ANY (ARRAY(SELECT t FROM pick))
    RETURNING ord, id, lane, prio, attempt, crashes, generation, run_at, deadline_at, key
), j AS MATERIALIZED (
    -- OFFSET 0 keeps the planner from a hash join over all of job. The epoch is drawn here, once for each job, so that nothing
    -- below needs another join. {claimed …} are the columns of stores/columns.py that a claim returns.
    SELECT t.*, nextval('holdfast.epoch') AS epoch, w.*
      FROM taken t
     CROSS JOIN LATERAL (SELECT payload, created_at, {claimed columns}
                           FROM holdfast.job WHERE id = t.id OFFSET 0) w
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
       {claimed columns}, j.ord
  FROM q, j
 ORDER BY j.prio, j.ord, j.id
