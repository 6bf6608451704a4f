-- Finished jobs that were kept long enough, with all that hangs on them. A dead letter is kept until a person redrives or
-- discards it. $1 before, $2 task (null: all), $3 limit, $4 all but these tasks
WITH p AS MATERIALIZED (
    SELECT f.job_id FROM holdfast.done f JOIN holdfast.job j ON j.id = f.job_id JOIN holdfast.lane n ON n.id = j.lane
     WHERE f.finished_at <= holdfast.clock() - $1::interval AND ($2::text IS NULL OR n.task = $2::text)
       AND n.task <> ALL ($4::text[])
       AND NOT EXISTS (SELECT FROM holdfast.dead_letter b WHERE b.job_id = f.job_id)
       AND NOT EXISTS (SELECT FROM holdfast.artifact a WHERE a.job_id = f.job_id)    -- they are deleted first
     LIMIT $3::int FOR UPDATE OF f SKIP LOCKED
), ids AS MATERIALIZED (SELECT ARRAY(SELECT job_id FROM p) AS a
), d1 AS (DELETE FROM holdfast.attempt WHERE job_id = ANY (ARRAY(SELECT unnest(a) FROM ids))
), d2 AS (DELETE FROM holdfast.step WHERE job_id = ANY (ARRAY(SELECT unnest(a) FROM ids))
), d3 AS (DELETE FROM holdfast.late_result WHERE job_id = ANY (ARRAY(SELECT unnest(a) FROM ids))
), d4 AS (DELETE FROM holdfast.life WHERE job_id = ANY (ARRAY(SELECT unnest(a) FROM ids))
), d5 AS (DELETE FROM holdfast.dedupe WHERE job_id = ANY (ARRAY(SELECT unnest(a) FROM ids))
), d6 AS (DELETE FROM holdfast.attempt_log WHERE job_id = ANY (ARRAY(SELECT unnest(a) FROM ids))
), d7 AS (DELETE FROM holdfast.job WHERE id = ANY (ARRAY(SELECT unnest(a) FROM ids)))
DELETE FROM holdfast.done WHERE job_id = ANY (ARRAY(SELECT unnest(a) FROM ids)) RETURNING job_id
