-- retry of a finished job: failed or cancelled → queued, as a new generation. The epoch stays, because it must only grow.
-- $1 id, $2 kind of the event, $3 meta, $4 lane (null: its own). Returns nothing if the job is not failed or cancelled.
WITH f AS (
    DELETE FROM holdfast.done WHERE job_id = $1::uuid AND {done may retry} RETURNING *
), q AS MATERIALIZED (
    SELECT holdfast.event_number() AS seq, holdfast.clock() AS at FROM f
), g AS (
    INSERT INTO holdfast.life (job_id, generation, queued_at, deadline_at, lane, manual_retries, manual_epoch)
    SELECT j.id, f.generation + 1, q.at, q.at + j.sla,
           coalesce($4::int, (SELECT lane FROM holdfast.life WHERE job_id = j.id), j.lane), 1, f.epoch
      FROM f JOIN holdfast.job j ON j.id = f.job_id, q
        ON CONFLICT (job_id) DO UPDATE SET generation = excluded.generation, queued_at = excluded.queued_at,
           deadline_at = excluded.deadline_at, lane = excluded.lane, manual_retries = life.manual_retries + 1,
           manual_epoch = excluded.manual_epoch
    RETURNING job_id, generation, deadline_at, lane
), r AS (
    INSERT INTO holdfast.ready (ord, id, lane, prio, attempt, crashes, generation, deadline_at)
    SELECT holdfast.place(q.at), j.id, g.lane, j.prio, 0, 0, g.generation, g.deadline_at
      FROM q, g JOIN holdfast.job j ON j.id = g.job_id WHERE j.key IS NULL
), d AS (
    INSERT INTO holdfast.deferred (run_at, id, lane, prio, attempt, crashes, generation, deadline_at, key)
    SELECT 'infinity', j.id, g.lane, j.prio, 0, 0, g.generation, g.deadline_at, j.key
      FROM g JOIN holdfast.job j ON j.id = g.job_id WHERE j.key IS NOT NULL
), b AS (
    DELETE FROM holdfast.dead_letter WHERE job_id = $1::uuid
), e AS (
    INSERT INTO holdfast.event (seq, at, kind, job_ids, epochs, attempts, metas, job_id, lane)
    SELECT q.seq, q.at, $2::smallint, ARRAY[f.job_id], ARRAY[f.epoch], ARRAY[0::smallint], ARRAY[$3::jsonb], f.job_id, g.lane FROM f, q, g
)
SELECT f.epoch, f.attempt FROM f
