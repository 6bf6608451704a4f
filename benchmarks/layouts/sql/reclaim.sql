-- $1 limit of sessions, $2 crash backoff seconds, $3 crashes in a row before the dead letter (here: stays deferred
-- with why = 9; production moves it to dead_letter in the same statement).
-- Dead sessions are locked with SKIP LOCKED, so sweepers do not meet. A heartbeat that races loses or wins the row
-- lock: its own test of expires_at decides. Scans lease as a whole: it holds only what is in flight.
-- A completion that comes at the same moment may deadlock with this (two orders of row locks): 40P01 is retried, which
-- is safe because every settle is repeatable under its epoch.
WITH s AS MATERIALIZED (
    SELECT id FROM holdfast.session WHERE expires_at <= clock_timestamp()
    ORDER BY expires_at LIMIT $1::int FOR UPDATE SKIP LOCKED
), d AS (
    -- The second arm: a claim that saw its session alive may commit just after the sweep that deleted the session.
    -- Its lease has no session; without this arm it would stay for ever. (The other cure, locking the session row
    -- in every claim, writes to one row for each claim.) A visible lease implies a session that was visible before,
    -- so a missing session is final.
    DELETE FROM holdfast.lease l
    WHERE l.session_id = ANY (ARRAY(SELECT id FROM s))
       OR NOT EXISTS (SELECT FROM holdfast.session x WHERE x.id = l.session_id)
    RETURNING l.*
), q AS MATERIALIZED (
    SELECT nextval('holdfast.event_seq') AS seq, clock_timestamp() AS at FROM (SELECT 1 FROM d LIMIT 1) one
), a AS (
    INSERT INTO holdfast.attempt (job_id, epoch, session_id, claim_seq, settle_seq, started_at, ended_at, attempt,
        outcome)
    SELECT d.job_id, d.epoch, d.session_id, d.claim_seq, q.seq, d.claimed_at, q.at, d.attempt, 2 FROM d, q
), f AS (
    INSERT INTO holdfast.deferred (run_at, id, ord, lane, attempt, prio, failures, crashes, why)
    SELECT q.at + make_interval(secs => $2::float8), d.job_id, d.ord, d.lane, d.attempt, d.prio, d.failures,
        d.crashes + 1, CASE WHEN d.crashes + 1 >= $3::int THEN 9 ELSE 2 END
    FROM d, q
), e AS (
    INSERT INTO holdfast.event (seq, at, kind, job_ids, epochs, attempts)
    SELECT q.seq, q.at, 5, g.ids, g.epochs, g.attempts
    FROM q, (SELECT array_agg(job_id) AS ids, array_agg(epoch) AS epochs, array_agg(attempt) AS attempts FROM d) g
), gone AS (
    DELETE FROM holdfast.session WHERE id = ANY (ARRAY(SELECT id FROM s)) RETURNING id
)
SELECT (SELECT count(*) FROM gone) AS sessions, (SELECT count(*) FROM d) AS leases
