-- $1 ids, $2 epochs, $3 delays in seconds float8[], $4 errors text[]; all in the order of $1.
-- Delay 0 goes straight back to ready with its old ord, a delay to deferred. One event either way.
WITH d AS (
    DELETE FROM holdfast.lease WHERE job_id = ANY ($1::/*id*/bigint[]) AND epoch = ANY ($2::bigint[])
    RETURNING *
), q AS MATERIALIZED (
    SELECT nextval('holdfast.event_seq') AS seq, clock_timestamp() AS at FROM (SELECT 1 FROM d LIMIT 1) one
), x AS MATERIALIZED (
    SELECT d.*, u.delay, u.error
    FROM d JOIN unnest($1::/*id*/bigint[], $3::float8[], $4::text[]) AS u(id, delay, error) ON u.id = d.job_id
), a AS (
    INSERT INTO holdfast.attempt (job_id, epoch, session_id, claim_seq, settle_seq, started_at, ended_at, attempt,
        outcome, error)
    SELECT x.job_id, x.epoch, x.session_id, x.claim_seq, q.seq, x.claimed_at, q.at, x.attempt, 1, x.error FROM x, q
), r AS (
    INSERT INTO holdfast.ready (ord, id, lane, attempt, prio, failures, crashes)
    SELECT ord, job_id, lane, attempt, prio, failures + 1, 0 FROM x WHERE delay <= 0
), f AS (
    INSERT INTO holdfast.deferred (run_at, id, ord, lane, attempt, prio, failures, crashes, why)
    SELECT q.at + make_interval(secs => x.delay), x.job_id, x.ord, x.lane, x.attempt, x.prio, x.failures + 1, 0, 1
    FROM x, q WHERE x.delay > 0
), e AS (
    INSERT INTO holdfast.event (seq, at, kind, job_ids, epochs, attempts)
    SELECT q.seq, q.at, 4, g.ids, g.epochs, g.attempts
    FROM q, (SELECT array_agg(job_id) AS ids, array_agg(epoch) AS epochs, array_agg(attempt) AS attempts FROM d) g
)
SELECT job_id FROM d
