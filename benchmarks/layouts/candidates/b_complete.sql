WITH d AS (DELETE FROM holdfast.lease WHERE job_id = ANY ($1::bigint[]) AND epoch = ANY ($2::bigint[]) RETURNING *),
q AS MATERIALIZED (SELECT clock_timestamp() AS at),
a AS (INSERT INTO holdfast.attempt (job_id, epoch, session_id, started_at, ended_at, attempt, outcome, error)
    SELECT d.job_id, d.epoch, d.session_id, d.claimed_at, q.at, d.attempt, 0, NULL FROM d, q ),
f AS (INSERT INTO holdfast.done (job_id, epoch, finished_at, attempt) SELECT d.job_id, d.epoch, q.at, d.attempt FROM d, q),
e AS (INSERT INTO holdfast.event (job_id, epoch, at, attempt, kind)
    SELECT d.job_id, d.epoch, q.at, d.attempt, 3 FROM d, q)
SELECT job_id FROM d
