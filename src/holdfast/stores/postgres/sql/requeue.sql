-- fail, release, reclaim: processing → queued. A job with a delay of 0 is ready at once, behind the others. A job with a key waits
-- for `grant`, which makes it ready when a slot of the key is free.
-- $1 ids, $2 epochs, $3 delays, $4 outcomes, $5 failures, $6 attempts to give back, $7 crashes to add (null: reset to 0),
-- $8 metas: by place; $9 kind of the event; $10 also those whose deadline has passed
WITH d AS (
    DELETE FROM holdfast.lease
     WHERE job_id = ANY ($1::uuid[]) AND epoch = ANY ($2::bigint[])
       AND ($10::boolean OR deadline_at IS NULL OR deadline_at >= holdfast.clock())
       AND {lease may}
    RETURNING *
), q AS MATERIALIZED (
    SELECT n.seq, n.at, holdfast.place(n.at) AS ord
      FROM (SELECT holdfast.event_number() AS seq, holdfast.clock() AS at FROM (SELECT 1 FROM d LIMIT 1) one OFFSET 0) n
), x AS MATERIALIZED (
    SELECT d.*, u.delay, u.outcome, u.failure, d.attempt - u.back AS attempt_now, coalesce(d.crashes + u.crashed, 0) AS crashes_now, u.meta
      FROM d JOIN unnest($1::uuid[], $2::bigint[], $3::interval[], $4::text[], $5::jsonb[], $6::smallint[], $7::smallint[], $8::jsonb[])
                  AS u(id, epoch, delay, outcome, failure, back, crashed, meta)
        ON u.id = d.job_id AND u.epoch = d.epoch
), a AS (
    INSERT INTO holdfast.attempt (job_id, epoch, session_id, claim_seq, settle_seq, started_at, ended_at, attempt, generation, outcome, failure,
                                  traceback, cost)
    SELECT x.job_id, x.epoch, x.session_id, x.claim_seq, q.seq, x.claimed_at, q.at, x.attempt, x.generation, x.outcome, x.failure,
           x.failure ->> 'traceback', (x.meta ->> 'cost')::float8 FROM x, q
), r AS (
    INSERT INTO holdfast.ready (ord, id, lane, prio, attempt, crashes, generation, run_at, deadline_at, key)
    SELECT q.ord, x.job_id, x.lane, x.prio, x.attempt_now, x.crashes_now, x.generation, q.at, x.deadline_at, x.key
      FROM x, q WHERE x.delay <= '0' AND x.key IS NULL
), f AS (
    INSERT INTO holdfast.deferred (run_at, id, lane, prio, attempt, crashes, generation, deadline_at, key, at_once)
    SELECT q.at + x.delay, x.job_id, x.lane, x.prio, x.attempt_now, x.crashes_now, x.generation, x.deadline_at, x.key, x.delay <= '0'
      FROM x, q WHERE x.delay > '0' OR x.key IS NOT NULL
), e AS (
    INSERT INTO holdfast.event (seq, at, kind, job_ids, epochs, attempts, metas, lane, lanes)
    SELECT q.seq, q.at, $9::smallint, g.ids, g.epochs, g.attempts, g.metas, CASE WHEN g.first = g.last THEN g.first END,
           CASE WHEN g.first < g.last THEN g.lanes END
      FROM q, (SELECT array_agg(job_id) AS ids, array_agg(epoch) AS epochs, array_agg(attempt) AS attempts,
                      array_agg(meta) AS metas, min(lane) AS first, max(lane) AS last, array_agg(lane) AS lanes FROM x) g
)
SELECT job_id, epoch, key, attempt FROM x
