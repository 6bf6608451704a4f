-- purge: complete → complete, expired. $1 before, $2 task (null: all), $3 limit, $4 all but these tasks
WITH p AS MATERIALIZED (
    SELECT f.job_id FROM holdfast.done f JOIN holdfast.job j ON j.id = f.job_id JOIN holdfast.lane n ON n.id = j.lane
     WHERE {f.done may purge} AND f.finished_at <= holdfast.clock() - $1::interval AND f.expired_at IS NULL AND ($2::text IS NULL OR n.task = $2::text)
       AND n.task <> ALL ($4::text[])
       AND NOT EXISTS (SELECT FROM holdfast.artifact a WHERE a.job_id = f.job_id)    -- they are deleted first
     LIMIT $3::int FOR UPDATE OF f SKIP LOCKED
), u AS (
    UPDATE holdfast.done f SET result = NULL, expired_at = holdfast.clock() FROM p WHERE f.job_id = p.job_id
    RETURNING f.job_id, f.epoch, f.attempt
)
INSERT INTO holdfast.event (seq, at, kind, job_ids, epochs, attempts, job_id)
SELECT holdfast.event_number(), holdfast.clock(), 14, ARRAY[u.job_id], ARRAY[u.epoch], ARRAY[u.attempt], u.job_id FROM u
RETURNING job_ids[1] AS job_id, epochs[1] AS epoch, attempts[1] AS attempt
