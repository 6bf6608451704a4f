-- retry of a deferred job: make it due now, in the same generation. A due job that a hold keeps deferred is included.
-- $1 id, $2 kind of the event, $3 meta, $4 priority, negated (null: its own)
WITH d AS (
    DELETE FROM holdfast.deferred
     WHERE {deferred may retry} AND id = $1::uuid AND isfinite(run_at) AND NOT at_once
       AND (run_at > holdfast.clock() OR holdfast.paused('delayed') OR (attempt > 0 AND holdfast.paused('retries')))
    RETURNING *
), q AS MATERIALIZED (
    SELECT holdfast.event_number() AS seq, holdfast.clock() AS at,
           coalesce((SELECT max(a.epoch) FROM holdfast.attempt a WHERE a.job_id = d.id), 0) AS epoch
      FROM d
), r AS (
    INSERT INTO holdfast.ready (ord, id, lane, prio, attempt, crashes, generation, run_at, deadline_at)
    SELECT holdfast.place(q.at), d.id, d.lane, coalesce($4::smallint, d.prio), d.attempt, d.crashes, d.generation, q.at, d.deadline_at FROM d, q WHERE d.key IS NULL
), w AS (
    INSERT INTO holdfast.deferred (run_at, id, lane, prio, attempt, crashes, generation, deadline_at, key, at_once)
    SELECT q.at, d.id, d.lane, coalesce($4::smallint, d.prio), d.attempt, d.crashes, d.generation, d.deadline_at, d.key, true FROM d, q WHERE d.key IS NOT NULL
), g AS (
    INSERT INTO holdfast.life (job_id, generation, queued_at, deadline_at, lane, manual_retries, manual_epoch)
    SELECT j.id, d.generation, j.created_at, j.deadline_at, j.lane, 1, q.epoch
      FROM q, d JOIN holdfast.job j ON j.id = d.id
        ON CONFLICT (job_id) DO UPDATE SET manual_retries = life.manual_retries + 1, manual_epoch = excluded.manual_epoch
), e AS (
    INSERT INTO holdfast.event (seq, at, kind, job_ids, epochs, attempts, metas, job_id, lane)
    SELECT q.seq, q.at, $2::smallint, ARRAY[d.id], ARRAY[q.epoch], ARRAY[d.attempt], ARRAY[$3::jsonb], d.id, d.lane FROM d, q
)
SELECT d.attempt, q.epoch FROM d, q
