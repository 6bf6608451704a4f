-- fail, reclaim, time_out, cancel: → failed or cancelled.
-- $1 ids, $2 epochs (null: under any lease, and queued jobs too), $3 state 4 failed or 5 cancelled, $4 kind of the event,
-- $5 outcome of the attempt, $6 deadline: 0 any, 1 passed, 2 not passed, $7 crashes to add (null: reset to 0),
-- $8 codes, $9 messages, $10 details, $11 fingerprints, $12 failures, $13 metas: by place of $1
WITH r AS (
    DELETE FROM holdfast.ready
     WHERE {ready may} AND $2::bigint[] IS NULL AND id = ANY ($1::uuid[])
       AND CASE $6::int WHEN 0 THEN true WHEN 1 THEN deadline_at < holdfast.clock() ELSE coalesce(deadline_at >= holdfast.clock(), true) END
    RETURNING id, lane, attempt, crashes, generation, run_at, key
), d AS (
    DELETE FROM holdfast.deferred
     WHERE {deferred may} AND $2::bigint[] IS NULL AND id = ANY ($1::uuid[])
       AND CASE $6::int WHEN 0 THEN true WHEN 1 THEN deadline_at < holdfast.clock() ELSE coalesce(deadline_at >= holdfast.clock(), true) END
    RETURNING id, lane, attempt, crashes, generation, CASE WHEN isfinite(run_at) THEN run_at END AS run_at, key
), l AS (
    DELETE FROM holdfast.lease
     WHERE {lease may} AND job_id = ANY ($1::uuid[]) AND ($2::bigint[] IS NULL OR epoch = ANY ($2::bigint[]))
       AND CASE $6::int WHEN 0 THEN true WHEN 1 THEN deadline_at < holdfast.clock() ELSE coalesce(deadline_at >= holdfast.clock(), true) END
    RETURNING *
), q AS MATERIALIZED (
    SELECT holdfast.clock() AS at
), x AS MATERIALIZED (
    SELECT e.*, holdfast.event_number() AS seq, u.code, u.message, u.detail, u.fingerprint, u.failure, u.meta
      FROM (SELECT id, lane, attempt, crashes, generation, run_at, key,
                   coalesce((SELECT max(a.epoch) FROM holdfast.attempt a WHERE a.job_id = id), 0) AS epoch
              FROM (SELECT * FROM r UNION ALL SELECT * FROM d) w
            UNION ALL
            SELECT job_id, lane, attempt, crashes, generation, run_at, key, epoch FROM l) e
      JOIN unnest($1::uuid[], $8::text[], $9::text[], $10::text[], $11::text[], $12::jsonb[], $13::jsonb[])
           AS u(id, code, message, detail, fingerprint, failure, meta) ON u.id = e.id
), a AS (
    INSERT INTO holdfast.attempt (job_id, epoch, session_id, claim_seq, settle_seq, started_at, ended_at, attempt, generation, outcome, failure,
                                  traceback, cost)
    SELECT l.job_id, l.epoch, l.session_id, l.claim_seq, x.seq, l.claimed_at, q.at, l.attempt, l.generation, $5::text, x.failure,
           x.failure ->> 'traceback', (x.meta ->> 'cost')::float8
      FROM q, l JOIN x ON x.id = l.job_id
), f AS (
    INSERT INTO holdfast.done (job_id, state, epoch, settle_seq, finished_at, attempt, crashes, generation, run_at, error_code, error_message)
    SELECT x.id, $3::smallint, x.epoch, x.seq, q.at, x.attempt, coalesce(x.crashes + $7::smallint, 0), x.generation, x.run_at,
           CASE WHEN $3::smallint = 4 THEN x.code END, CASE WHEN $3::smallint = 4 THEN x.message END
      FROM x, q
), b AS (
    INSERT INTO holdfast.dead_letter (job_id, at, lane, attempts, code, message, detail, fingerprint)
    SELECT x.id, q.at, x.lane, x.attempt, x.code, x.message, x.detail, x.fingerprint FROM x, q WHERE $3::smallint = 4
), v AS (
    INSERT INTO holdfast.event (seq, at, kind, job_ids, epochs, attempts, metas, job_id, lane)
    SELECT x.seq, q.at, $4::smallint, ARRAY[x.id], ARRAY[x.epoch], ARRAY[x.attempt], ARRAY[x.meta], x.id, x.lane FROM x, q
)
SELECT id AS job_id, epoch, attempt, key FROM x
