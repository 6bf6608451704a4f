WITH d AS (DELETE FROM holdfast.lease WHERE job_id = ANY ($1::bigint[]) AND epoch = ANY ($2::bigint[]) RETURNING *),
q AS MATERIALIZED (SELECT clock_timestamp() AS at),
a AS (INSERT INTO holdfast.attempt (job_id, epoch, session_id, started_at, ended_at, attempt, outcome, error)
    SELECT d.job_id, d.epoch, d.session_id, d.claimed_at, q.at, d.attempt, 1, x.error FROM d, q , unnest($1::bigint[], $3::float8[], $4::text[]) AS x(id, delay, error) WHERE x.id = d.job_id),
r AS (INSERT INTO holdfast.ready (ord, id, lane, attempt, prio, failures, crashes) SELECT ord, job_id, lane, attempt, prio, failures + 1, 0 FROM d),
e AS (INSERT INTO holdfast.event (job_id, epoch, at, attempt, kind)
    SELECT d.job_id, d.epoch, q.at, d.attempt, 4 FROM d, q)
SELECT job_id FROM d
