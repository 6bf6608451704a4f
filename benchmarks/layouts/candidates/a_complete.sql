-- `state + 0`: a plain `state = 2` makes the planner read the whole partial index job_lease.
WITH q AS MATERIALIZED (SELECT clock_timestamp() AS at),
u AS (UPDATE holdfast.job j SET state = 3, finished_at = q.at, run_until = NULL
    FROM q WHERE j.id = ANY ($1::bigint[]) AND j.epoch = ANY ($2::bigint[]) AND j.state + 0 = 2
    RETURNING j.id, j.epoch, j.session_id, j.claimed_at, j.attempt),
a AS (INSERT INTO holdfast.attempt (job_id, epoch, session_id, started_at, ended_at, attempt, outcome, error)
    SELECT u.id, u.epoch, u.session_id, u.claimed_at, q.at, u.attempt, 0, NULL FROM u, q ),
e AS (INSERT INTO holdfast.event (job_id, epoch, at, attempt, kind) SELECT u.id, u.epoch, q.at, u.attempt, 3
    FROM u, q)
SELECT id FROM u
